#include "core/model/net/cache_view.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace speclab {

CacheView CacheView::ends(int first, int last) {
  SPECLAB_CHECK(first >= 0 && last >= 0, "the first {} and the last {} positions", first, last);
  CacheView view;
  view.first_ = first;
  view.last_ = last;
  return view;
}

CacheView CacheView::list(std::vector<std::int32_t> positions) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    SPECLAB_CHECK(positions[i] >= 0 && (i == 0 || positions[i] > positions[i - 1]),
                  "position {} after {} in a view, where positions must ascend", positions[i],
                  i == 0 ? -1 : positions[i - 1]);
  }
  CacheView view;
  view.listed_ = true;
  view.list_ = std::move(positions);
  return view;
}

CacheView CacheView::per_layer(std::vector<CacheView> layers) {
  SPECLAB_CHECK(!layers.empty(), "a view without layers");
  for (const CacheView& layer : layers)
    SPECLAB_CHECK(layer.same_in_all_layers(), "the view of one layer has {} layers itself",
                  layer.layers_.size());
  CacheView view;
  view.layers_ = std::move(layers);
  return view;
}

const CacheView& CacheView::of(int index) const {
  return same_in_all_layers() ? *this : layers_[static_cast<std::size_t>(index)];
}

int CacheView::most(int committed) const {
  if (same_in_all_layers()) return count(committed);
  int most = 0;
  for (const CacheView& layer : layers_) most = std::max(most, layer.count(committed));
  return most;
}

void CacheView::check(int layers, int committed) const {
  SPECLAB_CHECK(same_in_all_layers() || static_cast<int>(layers_.size()) == layers,
                "a view of {} layers for a model of {}", layers_.size(), layers);
  for (const CacheView& layer : layers_) layer.check(layers, committed);
  SPECLAB_CHECK(list_.empty() || list_.back() < committed,
                "a view lists position {}, but only {} are committed", list_.back(), committed);
}

int CacheView::count(int committed) const {
  if (listed_) return static_cast<int>(list_.size());
  return static_cast<int>(std::min<std::int64_t>(committed, std::int64_t{first_} + last_));
}

int CacheView::rank(int committed, int position) const {
  if (listed_)
    return static_cast<int>(std::lower_bound(list_.begin(), list_.end(), position) - list_.begin());
  const int hidden = committed - count(committed);  // positions that the view leaves out, from first_ on
  return position <= first_ ? position : std::max(first_, position - hidden);
}

void CacheView::append(int committed, std::vector<std::int32_t>& out) const {
  if (listed_) {
    out.insert(out.end(), list_.begin(), list_.end());
    return;
  }
  const int count = this->count(committed), first = std::min(first_, count);
  const std::size_t at = out.size();
  out.resize(at + static_cast<std::size_t>(count));
  const auto middle = out.begin() + static_cast<std::ptrdiff_t>(at) + first;
  std::iota(out.begin() + static_cast<std::ptrdiff_t>(at), middle, 0);
  std::iota(middle, out.end(), committed - count + first);
}

KeysOfRow keys_of_row(const CacheView& view, int committed, int position, int window) {
  const int listed = view.count(committed), lowest = window > 0 ? std::max(0, position - window + 1) : 0;
  return {lowest <= committed ? view.rank(committed, lowest) : listed + lowest - committed,
          listed + position - committed};
}

}  // namespace speclab
