#include <nlohmann/json.hpp>

#include "model/tokenizers/tokenizer_parts.h"

namespace tailor::tokenizers {

std::vector<TokenizerPart> byte_tokenizer_parts() {
  using nlohmann::ordered_json;
  constexpr std::string_view kByteEos = "</s>";
  const std::uint32_t eos_id = make_byte_tokenizer()->eos_id();
  ordered_json vocabulary = ordered_json::object();
  // The alphabet of byte_alphabet.h.
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const unsigned character = is_printable ? byte : next++;
    std::string text;
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xC0 | (character >> 6));
      text += static_cast<char>(0x80 | (character & 0x3F));
    }
    vocabulary[text] = byte;
  }
  vocabulary[std::string(kByteEos)] = eos_id;
  const ordered_json byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", true},
                                   {"use_regex", false}};
  const ordered_json json = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens",
                              {{{"id", eos_id},
                                {"content", kByteEos},
                                {"single_word", false},
                                {"lstrip", false},
                                {"rstrip", false},
                                {"normalized", false},
                                {"special", true}}}},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", byte_level},
                             {"post_processor", nullptr},
                             {"decoder", byte_level},
                             {"model",
                              {{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"ignore_merges", false},
                               {"vocab", vocabulary},
                               {"merges", ordered_json::array()}}}};
  const ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                               {"clean_up_tokenization_spaces", false},
                               {"eos_token", kByteEos}};
  return {{"tokenizer.json", json.dump(2) + "\n"},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace tailor::tokenizers
