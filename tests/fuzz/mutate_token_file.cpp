#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "tests/fuzz/mutate.h"

namespace speclab::fuzz {
namespace {

constexpr std::size_t kSections = 8, kBytesAt = 16, kHeader = 208;

std::uint32_t extreme_entry(Random& random) {
  static constexpr std::uint32_t kEntries[] = {0, 1, 2, 3, 6, 7, 64, INT32_MAX, UINT32_MAX - 1, UINT32_MAX};
  return kEntries[below(random, std::size(kEntries))];
}

void change_section(std::string& section, Random& random, const MutateBytes& bytes) {
  const std::size_t entries = section.size() / 4;
  const auto entry_at = [&](std::size_t i) {
    std::uint32_t entry;
    std::memcpy(&entry, section.data() + 4 * i, sizeof entry);
    return entry;
  };
  const auto put = [&](std::size_t i, std::uint32_t entry) {
    std::memcpy(section.data() + 4 * i, &entry, sizeof entry);
  };
  if (entries == 0) {
    section.append(4 * (1 + below(random, 8)), '\0');
    return;
  }
  const std::size_t at = below(random, entries), wide = 4 * (below(random, 2) == 0 ? 1 : 4);
  switch (below(random, 6)) {
    case 0: put(at, extreme_entry(random)); break;
    case 1: put(at, entry_at(at) + (below(random, 2) == 0 ? 1u : ~0u)); break;
    case 2: put(at, entry_at(below(random, entries))); break;
    case 3: section.erase(4 * at / wide * wide, wide); break;
    case 4:
      section.insert(4 * at / wide * wide, section.substr(4 * below(random, entries) / wide * wide, wide));
      break;
    default: bytes(section);
  }
}

}  // namespace

std::string mutate_token_file(const std::string& file, Random& random, const MutateBytes& bytes) {
  std::string header = file.substr(0, std::min(file.size(), kHeader));
  header.resize(kHeader, '\0');
  std::array<std::string, kSections> sections;
  std::size_t at = std::min(file.size(), kHeader);
  for (std::size_t i = 0; i < kSections; ++i) {
    std::uint64_t size;
    std::memcpy(&size, header.data() + kBytesAt + 8 * i, sizeof size);
    sections[i] = file.substr(at, std::min<std::uint64_t>(size, file.size() - at));
    at += sections[i].size();
  }
  for (std::size_t i = 0, n = 1 + below(random, 3); i < n; ++i) {
    switch (below(random, 10)) {
      case 0: {
        const std::uint32_t vocab =
            below(random, 2) == 0 ? extreme_entry(random) : 1 + static_cast<std::uint32_t>(below(random, 16));
        std::memcpy(header.data() + 12, &vocab, sizeof vocab);
        break;
      }
      case 1: std::swap(sections[below(random, kSections)], sections[below(random, kSections)]); break;
      case 2:
        bytes(header);
        header.resize(kHeader, '\0');
        break;
      default: {
        std::string* section = &sections[below(random, kSections)];
        if (section->empty())
          section = &*std::max_element(sections.begin(), sections.end(),
                                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
        change_section(*section, random, bytes);
      }
    }
  }
  std::string out;
  for (std::size_t i = 0; i < kSections; ++i) {
    sections[i].resize(sections[i].size() / 4 * 4);
    std::uint64_t size = sections[i].size();
    if (below(random, 100) == 0) size = extreme_entry(random);
    std::memcpy(header.data() + kBytesAt + 8 * i, &size, sizeof size);
    out += sections[i];
  }
  return header + out;
}

}  // namespace speclab::fuzz
