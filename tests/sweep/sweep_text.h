// A small correct sweep file, built of sections, so that a test says only what it changes.
#pragma once

#include <map>
#include <string>

#include "base/check.h"
#include "sweep/spec.h"

namespace tailor::sweep {

/// Sections in file order. Setting one to "" leaves it out.
struct SweepText {
  std::string top = "name = \"small\"\nbaseline = \"conventional\"\n";
  std::string data =
      "[data]\ntrain = \"t-*.tokens\"\nvalidation = \"/v/v.tokens\"\nsequence_length = 128\n";
  std::string architecture =
      "[architecture]\nd_model = 128\nlayers = 4\nhead_dim = 32\nvocab_size = 512\nffn = { kind = "
      "\"swiglu\", d_h = 512 }\n";
  std::string budget = "[budget]\nparameters = 1_048_576\n";
  std::string candidates =
      "[[candidate]]\nname = \"conventional\"\n[[candidate]]\nname = \"hourglass\"\nffn = { kind = "
      "\"hourglass\", k = 2 }\n";
  std::string space;
  std::string train = "[train]\ntokens = \"2 per parameter\"\nbatch = 1024\n";
  std::string rest;

  std::string text() const {
    return top + data + architecture + budget + candidates + space + train + rest;
  }
  Result<Spec> parse() const { return sweep::parse(text(), "s.toml", "/base"); }
};

/// REQUIRES: the text parses; prints the error otherwise.
inline Spec parse_or_die(const SweepText& text) {
  auto spec = text.parse();
  TAILOR_CHECK(spec.has_value(), "{}", spec.error().to_string());
  return std::move(*spec);
}

}  // namespace tailor::sweep
