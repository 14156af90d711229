// The closed forms of overlapped timelines, against the same timelines played event by event.
#include "core/simulate/timelines/overlap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/simulate/timelines/event_simulation.h"

namespace speclab::simulate::overlap_test {
namespace {

using theory::RowTimes;

const RowTimes kFlat(1.0);
const RowTimes kRising({{1, 1.0}, {9, 2.0}});  // 1/8 for each further row: exact in binary

/// The time per token without random coins. Everything starts again after a correction, so the timeline is
/// played once for each number of accepted tokens before the correction, and weighted with its probability.
double played_exactly(const TimelineSetting& setting, double alpha) {
  double time = 0, probability = 1;
  for (int accepted = 0; probability > 1e-13; ++accepted, probability *= alpha) {
    int judged = 0;
    const auto accept = [&] { return judged++ < accepted; };
    const TimelineRun run = play_timeline(setting, accept, accepted + 1);
    EXPECT_EQ(run.tokens, accepted + 1);
    time += probability * (1 - alpha) * run.time;
  }
  return time * (1 - alpha);  // 1 / (1 - alpha) tokens between two corrections
}

double played_with_coins(const TimelineSetting& setting, double alpha, int tokens) {
  std::uint32_t coin = 0;
  const auto accept = [&] {
    const PhiloxCounter word = philox4x32({coin++, 0, 0, 0}, {7, 0});
    return uniform_of(word[0], word[1]) < alpha;
  };
  const TimelineRun run = play_timeline(setting, accept, tokens);
  return run.time / static_cast<double>(run.tokens);
}

TEST(Overlap, SerialDraftingIsTheorem38) {
  EXPECT_NEAR(serial_token_time(.75, 4, .125, kRising), (.5 + 1.5) / theory::expected_tokens(.75, 4), 1e-12);
  const TimelineSetting setting{Timeline::serial, 4, 1, .125, kRising};
  EXPECT_NEAR(played_with_coins(setting, .75, 400'000), serial_token_time(.75, 4, .125, kRising), .005);
}

TEST(Overlap, PearlIsTheStationaryLawOfItsTwoRounds) {
  for (const double alpha : {0.0, .3, .6, .9}) {
    for (const int gamma : {1, 3, 4, 8}) {
      for (const RowTimes& verify : {kFlat, kRising}) {
        const TimelineSetting setting{Timeline::pearl, gamma, 1, .25, verify};
        EXPECT_NEAR(pearl_token_time(alpha, gamma, .25, verify), played_exactly(setting, alpha), 1e-9)
            << alpha << " " << gamma;
      }
    }
  }
  const TimelineSetting setting{Timeline::pearl, 4, 1, .25, kRising};
  EXPECT_NEAR(played_with_coins(setting, .8, 400'000), pearl_token_time(.8, 4, .25, kRising), .005);
}

TEST(Overlap, PostVerifyDraftsAnewAfterACorrection) {
  for (const double alpha : {0.0, .3, .6, .9}) {
    for (const int gamma : {1, 3, 4, 8}) {
      for (const double draft : {.0625, .25}) {  // verification is the slower one, or drafting is
        for (const RowTimes& verify : {kFlat, kRising}) {
          const TimelineSetting setting{Timeline::post_verify, gamma, 1, draft, verify};
          EXPECT_NEAR(post_verify_token_time(alpha, gamma, draft, verify), played_exactly(setting, alpha),
                      1e-9)
              << alpha << " " << gamma << " " << draft;
        }
      }
    }
  }
  const TimelineSetting setting{Timeline::post_verify, 4, 1, .25, kRising};
  EXPECT_NEAR(played_with_coins(setting, .8, 400'000), post_verify_token_time(.8, 4, .25, kRising), .005);
  // By hand: nothing is accepted, so each token takes three draft forwards and a verification of four rows.
  EXPECT_DOUBLE_EQ(post_verify_token_time(0, 3, .125, kRising), 3 * .125 + 1.375);
  // Everything is accepted: four tokens for each verification, or for each four draft forwards.
  EXPECT_DOUBLE_EQ(post_verify_token_time(1, 3, .125, kFlat), .25);
  EXPECT_DOUBLE_EQ(post_verify_token_time(1, 3, .5, kFlat), .5);
}

TEST(Overlap, PostVerifyIsNeverSlowerThanSerialDraftingWithAFastDraft) {
  // While drafting ahead fits into a verification, it costs nothing.
  for (double alpha = 0; alpha <= 1; alpha += .125) {
    for (int gamma = 1; gamma <= 7; ++gamma)
      EXPECT_LE(post_verify_token_time(alpha, gamma, .125, kFlat),
                serial_token_time(alpha, gamma, .125, kFlat) + 1e-12)
          << alpha << " " << gamma;
  }
}

TEST(Overlap, AmusdFollowsFromTheTimesAlone) {
  for (const double alpha : {0.0, .3, .6, .9}) {
    for (const double draft : {1.0, .5, .3125, .0625}) {  // .3125: the phases of the two drift apart
      for (const RowTimes& verify : {kFlat, kRising}) {
        const TimelineSetting setting{Timeline::amusd, 1, 1, draft, verify};
        EXPECT_NEAR(amusd_token_time(alpha, draft, verify), played_exactly(setting, alpha), 1e-8)
            << alpha << " " << draft;
      }
    }
  }
}

TEST(Overlap, DsiWaitsForItsServers) {
  for (const double alpha : {0.0, .3, .6, .9}) {
    for (const int lookahead : {1, 2, 5, 8}) {
      for (const int servers : {1, 2, 3, 8}) {
        const TimelineSetting setting{Timeline::dsi, lookahead, servers, .125, kFlat};
        EXPECT_NEAR(dsi_token_time(alpha, lookahead, servers, .125, 1), played_exactly(setting, alpha), 1e-9)
            << alpha << " " << lookahead << " " << servers;
      }
    }
  }
  const TimelineSetting setting{Timeline::dsi, 2, 2, .125, kFlat};
  EXPECT_NEAR(played_with_coins(setting, .8, 400'000), dsi_token_time(.8, 2, 2, .125, 1), .005);
}

TEST(Overlap, LimitsAreThoseThatAPersonComputes) {
  // Nothing is accepted: a token for each target forward, and PEARL waits for the draft.
  EXPECT_DOUBLE_EQ(pearl_token_time(0, 3, .5, kFlat), 1.5);
  EXPECT_DOUBLE_EQ(amusd_token_time(0, .5, kFlat), 1);
  EXPECT_DOUBLE_EQ(dsi_token_time(0, 2, 3, .25, 1), 1);
  // Everything is accepted: as fast as the draft, or as the servers can verify.
  EXPECT_DOUBLE_EQ(pearl_token_time(1, 4, .25, kFlat), .25);
  EXPECT_NEAR(amusd_token_time(1, .25, kFlat), .25, 1e-4);
  EXPECT_DOUBLE_EQ(dsi_token_time(1, 2, 4, .125, 1), .125);
  EXPECT_DOUBLE_EQ(dsi_token_time(1, 2, 2, .125, 1), .25);
  // Lookahead 1 and enough servers: an accepted token costs a draft forward, a correction a target forward.
  EXPECT_DOUBLE_EQ(dsi_token_time(.6, 1, 8, .125, 1), .6 * .125 + .4);
}

TEST(Overlap, PearlWithRoundsOfOneTargetForwardIsAmusd) {
  for (const double alpha : {.2, .5, .95})
    EXPECT_NEAR(pearl_token_time(alpha, 4, .25, kFlat), amusd_token_time(alpha, .25, kFlat), 1e-9);
}

TEST(Overlap, DsiWithEnoughServersIsNeverSlowerThanSerialOrAutoregressiveDecoding) {
  for (double alpha = 0; alpha <= 1; alpha += .125) {
    for (int lookahead = 1; lookahead <= 8; ++lookahead) {
      const double time = dsi_token_time(alpha, lookahead, dsi_servers(lookahead, .125, 1), .125, 1);
      EXPECT_LE(time, 1 + 1e-12);
      EXPECT_LE(time, serial_token_time(alpha, lookahead, .125, kFlat) + 1e-12) << alpha << " " << lookahead;
    }
  }
}

TEST(Overlap, TheBestSettingsAreThoseOfASearch) {
  const OverlapChoice serial = best_serial(.7, .125, kRising, 16), pearl = best_pearl(.7, .125, kRising, 16),
                      post_verify = best_post_verify(.7, .125, kRising, 16);
  for (int gamma = 1; gamma <= 16; ++gamma) {
    EXPECT_LE(serial.token_time, serial_token_time(.7, gamma, .125, kRising));
    EXPECT_LE(pearl.token_time, pearl_token_time(.7, gamma, .125, kRising));
    EXPECT_LE(post_verify.token_time, post_verify_token_time(.7, gamma, .125, kRising));
  }
  EXPECT_DOUBLE_EQ(serial.token_time, serial_token_time(.7, serial.tokens, .125, kRising));
  const OverlapChoice dsi = best_dsi(.7, .125, kFlat, 0, 16);
  EXPECT_EQ(dsi.tokens, 1);  // with as many servers as needed, the shortest lookahead is best
  EXPECT_EQ(dsi.servers, 8);
  EXPECT_GT(best_dsi(.7, .125, kFlat, 2, 16).tokens, 1);  // two servers cannot verify every token
  EXPECT_EQ(best_serial(.05, .5, kFlat, 16).tokens, 0);   // drafting does not pay
  EXPECT_DOUBLE_EQ(best_serial(.05, .5, kFlat, 16).token_time, 1);
}

TEST(Overlap, WhatHasNoTimelineIsRefused) {
  EXPECT_THROW(serial_token_time(1.1, 2, .1, kFlat), Error);
  EXPECT_THROW(pearl_token_time(.5, 0, .1, kFlat), Error);
  EXPECT_THROW(pearl_token_time(.5, 2, 0, kFlat), Error);
  EXPECT_THROW(post_verify_token_time(1.1, 2, .1, kFlat), Error);
  EXPECT_THROW(post_verify_token_time(.5, 0, .1, kFlat), Error);
  EXPECT_THROW(post_verify_token_time(.5, 2, 0, kFlat), Error);
  EXPECT_THROW(amusd_token_time(.5, 1.5, kFlat), Error);
  EXPECT_THROW(dsi_token_time(.5, 9, 1, .125, 1),
               Error);  // drafting the lookahead takes longer than verifying
  EXPECT_THROW(dsi_token_time(.5, 1, 0, .125, 1), Error);
  EXPECT_THROW(play_timeline({Timeline::amusd, 1, 1, 1.5, kFlat}, [] { return true; }, 1), Error);
  EXPECT_THROW(play_timeline({Timeline::serial, 0, 1, .5, kFlat}, [] { return true; }, 1), Error);
}

}  // namespace
}  // namespace speclab::simulate::overlap_test
