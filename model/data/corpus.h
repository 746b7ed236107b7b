// Corpus: documents streamed from text files.
//
// Formats by name: .txt, .rst, .md (one document a file, as plain text) and .jsonl (one document a
// line, its member "text"); each also as .gz or .zst. Folders are read recursively, in the byte
// order of the relative names, so the same files give the same documents in the same order on every
// machine. Text must be UTF-8. Offsets in errors count bytes of the text after decompression.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailor::data {

/// A file of a corpus.
struct CorpusFile {
  std::string path;  ///< as it is opened
  /// Path relative to the folder that was given (or the file's own name): part of the documents'
  /// names, which therefore do not change when the corpus moves.
  std::string name;
  friend bool operator==(const CorpusFile&, const CorpusFile&) = default;
};

struct CorpusOptions {
  /// Count and skip files that cannot be decoded (wrong UTF-8, cut short, bad JSON) instead of
  /// failing. Such files are read twice. Missing and unreadable files fail all the same.
  bool skip_bad = false;
  /// Long plain-text documents come in pieces of about this size, cut after a newline where there
  /// is one.
  std::uint64_t piece_bytes = 4u << 20;
  /// Longest line of a .jsonl file.
  std::uint64_t line_bytes_max = 256u << 20;
};

/// A document, or a part of a long one. Parts of one document come in order with nothing between.
struct CorpusPiece {
  std::string document;  ///< CorpusFile::name, with ":LINE" behind it for .jsonl
  std::string text;      ///< valid UTF-8; empty only in the last piece of a longer document
  bool ends_document = true;
};

struct CorpusSummary {
  std::uint64_t files = 0;      ///< files read, the skipped ones not counted
  std::uint64_t documents = 0;  ///< documents with at least one byte
  std::uint64_t bytes = 0;      ///< of text, decompressed
  std::uint64_t empty_documents = 0;
  std::vector<Status> skipped;  ///< one for each file skipped, with the reason
};

/// The files that `inputs` (files and folders) name. Inputs keep their order; within a folder the
/// order is that of the names' bytes, files of other kinds are passed over. Errors: kNotFound
/// (missing); kInvalidArgument (an input of unknown kind, a folder without a text file, no inputs);
/// the system's reason for a folder that cannot be listed.
Result<std::vector<CorpusFile>> list_corpus(const std::vector<std::string>& inputs);

/// Gets each piece in turn; a failure ends the reading and is returned.
using CorpusSink = std::function<Status(CorpusPiece&&)>;

/// Streams all documents of `files`, in order. Memory: about two pieces.
/// Errors, naming the file: kNotFound, kPermissionDenied, kUnavailable (unreadable);
/// kInvalidArgument (not UTF-8, with the byte offset; bad JSON, with the line; a corpus without any
/// text); kDataLoss (compressed data cut short or altered).
Result<CorpusSummary> read_corpus(const std::vector<CorpusFile>& files,
                                  const CorpusOptions& options, const CorpusSink& sink);

}  // namespace tailor::data
