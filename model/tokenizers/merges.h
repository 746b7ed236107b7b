// Byte-pair merging: joins neighbouring symbols of a word, best rank first, until no pair of the
// table is left. The same for byte-level BPE (ranks are the order of the merges) and for
// SentencePiece's BPE (ranks are the order of the scores).
#pragma once

#include <cstdint>
#include <vector>

namespace tailor::tokenizers {

/// Pairs of symbols that become one. Open addressing: a look-up is one or two cache lines.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;  ///< lower first; equal ranks from left to right
    std::uint32_t result;
  };

  /// Makes room for `count` pairs.
  explicit MergeTable(std::size_t count = 0);
  /// Adds a pair, or gives it another merge. No more pairs than the constructor was told.
  void add(std::uint32_t left, std::uint32_t right, Merge merge);
  /// nullptr when the pair does not merge.
  const Merge* find(std::uint32_t left, std::uint32_t right) const;

 private:
  struct Slot {
    std::uint64_t pair;
    Merge merge;
  };
  std::size_t slot_of(std::uint64_t pair) const;
  std::vector<Slot> slots_;
};

/// A symbol of a word while it is merged.
struct MergeSymbol {
  std::uint32_t id;
  std::uint32_t begin;  ///< bytes [begin, end) of the word
  std::uint32_t end;
};

/// Merges in O(n log n). Keeps its working memory, so one object a thread.
class Merger {
 public:
  /// Merges `symbols` in place.
  void merge(const MergeTable& table, std::vector<MergeSymbol>* symbols);

 private:
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t at;  // of the left symbol
    std::uint32_t left, right, result;
    // For a heap with the best on top.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    }
  };
  std::vector<Candidate> heap_;
  std::vector<std::uint32_t> next_, previous_;
};

}  // namespace tailor::tokenizers
