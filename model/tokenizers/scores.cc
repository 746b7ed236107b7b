// SentencePiece's BPE as merges: its scores order the pieces as ranks order merges.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/text.h"
#include "model/tokenizers/tokenizer_files.h"

namespace tailor::tokenizers {

// Real pieces have a few dozen bytes; the time for one grows with its square.
constexpr std::size_t kMergedPieceBytesMax = 1024;

void add_merges_by_score(const std::vector<float>& scores, TokenizerSpec* spec) {
  const auto count = static_cast<std::uint32_t>(spec->pieces.size());
  std::unordered_map<std::string_view, std::uint32_t> ids;
  std::vector<std::uint32_t> order;
  for (std::uint32_t id = 0; id < count; ++id) {
    const std::string& piece = spec->pieces[id];
    if (spec->kinds[id] != PieceKind::kNormal || piece.empty() ||
        piece.size() > kMergedPieceBytesMax || !is_valid_utf8(piece)) {
      continue;
    }
    if (ids.emplace(piece, id).second) order.push_back(id);
  }
  // Characters that are no piece themselves still begin merges.
  std::unordered_map<std::string, std::uint32_t> extra;
  for (const std::uint32_t id : order) {
    const std::string_view piece = spec->pieces[id];
    for (std::size_t at = 0, size = 0; at < piece.size(); at += size) {
      size = character_bytes(piece, at);
      const std::string_view character = piece.substr(at, size);
      if (!ids.contains(character)) {
        extra.emplace(character, count + static_cast<std::uint32_t>(extra.size()));
      }
    }
  }
  spec->extra_symbols.resize(extra.size());
  for (const auto& [character, id] : extra) spec->extra_symbols[id - count] = character;
  for (const auto& [character, id] : extra) ids.emplace(character, id);

  // NaN last, so that the order is one.
  const auto score = [&](std::uint32_t id) {
    return std::isnan(scores[id]) ? -std::numeric_limits<float>::infinity() : scores[id];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return score(a) > score(b); });
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    const std::string_view piece = spec->pieces[order[i]];
    for (std::size_t at = character_bytes(piece, 0); at < piece.size();
         at += character_bytes(piece, at)) {
      const auto left = ids.find(piece.substr(0, at));
      if (left == ids.end()) continue;
      const auto right = ids.find(piece.substr(at));
      if (right == ids.end()) continue;
      spec->merges.push_back({left->second, right->second, order[i], rank});
    }
  }
}

void mark_spaces(bool adds_prefix, TokenizerSpec* spec) {
  spec->space_mark = kSpaceMark;
  spec->normalizer.push_back(
      {.kind = NormalizerStep::Kind::kReplace, .from = " ", .to = std::string(kSpaceMark)});
  if (adds_prefix) spec->prefix = kSpaceMark;
}

}  // namespace tailor::tokenizers
