#include "core/simulate/timelines/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::simulate {
namespace {

constexpr double kRarelyLaunched = 1e-12;
constexpr int kMostForwards = 100'000;
/// Relative tolerance: two times that differ by this share of one of them count as equal.
constexpr double kSameTime = 1e-9;

int require_tokens(const char* name, int tokens) {
  theory::require_gamma(name, tokens);
  if (tokens < 1) throw Error({name, fmt::format("{}", tokens), "at least 1", ""});
  return tokens;
}

void require_fast_draft(double draft, double verify, const char* what) {
  if (draft <= verify * (1 + kSameTime)) return;
  throw Error({.what = what,
               .got = fmt::format("{} for drafting, {} for a verification", draft, verify),
               .expected = "drafting that takes no longer than a verification",
               .advice = "Take a faster draft; for DSI, a smaller lookahead also helps."});
}

/// sum_{i < count} alpha^i.
double power_sum(double alpha, int count) { return theory::expected_tokens(alpha, count - 1); }

template <typename TokenTime>
OverlapChoice fastest(double autoregressive, int most, TokenTime&& token_time) {
  OverlapChoice best{.tokens = 0, .servers = 1, .token_time = autoregressive};
  for (int tokens = 1; tokens <= most; ++tokens) {
    const OverlapChoice choice = token_time(tokens);
    if (choice.token_time < best.token_time) best = choice;
  }
  return best;
}

}  // namespace

double serial_token_time(double alpha, int gamma, double draft, const theory::RowTimes& verify) {
  require_tokens("gamma", gamma);
  theory::require_positive("draft time", draft);
  return (gamma * draft + verify.at(gamma + 1)) / theory::expected_tokens(alpha, gamma);
}

double pearl_token_time(double alpha, int gamma, double draft, const theory::RowTimes& verify) {
  require_tokens("gamma", gamma);
  theory::require_positive("draft time", draft);
  theory::require_probability("alpha", alpha);
  const double drafting = gamma * draft;
  const double pre = std::max(drafting, verify.at(1)), post = std::max(drafting, verify.at(gamma));
  const double broken = -std::expm1(gamma * std::log(alpha));  // 1 - alpha^gamma; 1 at alpha = 0
  return (broken * pre + alpha * post) / power_sum(alpha, gamma);
}

double post_verify_token_time(double alpha, int gamma, double draft, const theory::RowTimes& verify) {
  const int judged = require_tokens("gamma", gamma) + 1;
  theory::require_positive("draft time", draft);
  theory::require_probability("alpha", alpha);
  const double round = std::max(judged * draft, verify.at(judged));
  const double broken = -std::expm1(judged * std::log(alpha));  // 1 - alpha^judged; 1 at alpha = 0
  return (broken * gamma * draft + round) / power_sum(alpha, judged);
}

double amusd_token_time(double alpha, double draft, const theory::RowTimes& verify) {
  theory::require_probability("alpha", alpha);
  theory::require_positive("draft time", draft);
  require_fast_draft(draft, verify.at(1), "the timeline of AMUSD");
  double launched = 1;  // probability that the next forward is launched
  double clock = 0, time = 0, tokens = 0;
  int drafted = 0, rows = 1;
  for (int forward = 0; forward < kMostForwards && launched > kRarelyLaunched; ++forward) {
    const double taken = verify.at(rows);
    clock += taken;
    time += launched * taken;
    tokens += launched * power_sum(alpha, rows);
    launched *= std::pow(alpha, rows);
    double so_far = std::floor(clock / draft + kSameTime);
    if (so_far > theory::kMaxGamma) break;  // verification is slower than drafting, and falls behind
    if (so_far <= drafted) {  // a forward over many rows was measured as faster than one over one row
      so_far = drafted + 1.0;
      time += launched * (so_far * draft - clock);
      clock = so_far * draft;
    }
    rows = static_cast<int>(so_far) - drafted;
    drafted = static_cast<int>(so_far);
  }
  return time / tokens;
}

double dsi_token_time(double alpha, int lookahead, int servers, double draft, double verify) {
  require_tokens("lookahead", lookahead);
  require_tokens("servers", servers);
  theory::require_positive("draft time", draft);
  theory::require_positive("verification time", verify);
  theory::require_probability("alpha", alpha);
  const double between = lookahead * draft;  // time between two verifications
  require_fast_draft(between, verify, "the timeline of DSI");
  const double wait = std::max(0.0, verify - servers * between);
  double waits = 0;
  if (wait > 0) {
    const double ahead = std::min<double>(theory::kMaxGamma, static_cast<double>(servers) * lookahead);
    waits = wait * std::pow(alpha, ahead - lookahead) / power_sum(alpha, static_cast<int>(ahead));
  }
  return (1 - alpha) * verify + alpha * (between / power_sum(alpha, lookahead) + waits);
}

int dsi_servers(int lookahead, double draft, double verify) {
  require_tokens("lookahead", lookahead);
  theory::require_positive("draft time", draft);
  theory::require_positive("verification time", verify);
  const double servers = std::ceil(verify / (lookahead * draft) - kSameTime);
  return static_cast<int>(std::clamp(servers, 1.0, static_cast<double>(theory::kMaxGamma)));
}

OverlapChoice best_serial(double alpha, double draft, const theory::RowTimes& verify, int most) {
  return fastest(verify.at(1), most, [&](int gamma) {
    return OverlapChoice{gamma, 1, serial_token_time(alpha, gamma, draft, verify)};
  });
}

OverlapChoice best_pearl(double alpha, double draft, const theory::RowTimes& verify, int most) {
  return fastest(verify.at(1), most, [&](int gamma) {
    return OverlapChoice{gamma, 1, pearl_token_time(alpha, gamma, draft, verify)};
  });
}

OverlapChoice best_post_verify(double alpha, double draft, const theory::RowTimes& verify, int most) {
  return fastest(verify.at(1), most, [&](int gamma) {
    return OverlapChoice{gamma, 1, post_verify_token_time(alpha, gamma, draft, verify)};
  });
}

OverlapChoice best_dsi(double alpha, double draft, const theory::RowTimes& verify, int servers, int most) {
  return fastest(verify.at(1), most, [&](int lookahead) {
    const double time = verify.at(lookahead);
    if (lookahead * draft > time) return OverlapChoice{0, 1, verify.at(1)};
    const int copies = servers > 0 ? servers : dsi_servers(lookahead, draft, time);
    return OverlapChoice{lookahead, copies, dsi_token_time(alpha, lookahead, copies, draft, time)};
  });
}

}  // namespace speclab::simulate
