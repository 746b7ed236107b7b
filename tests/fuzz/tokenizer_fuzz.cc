// tokenizer.json and SentencePiece models: what is accepted encodes any bytes to ids of its
// vocabulary, which decode.
#include "base/text.h"
#include "model/tokenizers/tokenizer_files.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

void check(Result<tokenizers::TokenizerSpec> spec) {
  if (!spec) {
    expect(spec.error().message().find("fuzz.json") != std::string::npos, "errors name the file");
    return;
  }
  const auto tokenizer = tokenizers::make_text_tokenizer(std::move(*spec), "fuzz.json");
  if (!tokenizer) {
    expect(tokenizer.error().message().find("fuzz.json") != std::string::npos,
           "errors name the file");
    return;
  }
  for (const std::string_view text : {"", "a", "aab ab  ba\n12 <e>x\xE2\x96\x81z",
                                      "\xFF\xC3 \xF0\x9F\x98\x80\xE2\x80\xA8 \t'll"}) {
    std::vector<std::uint32_t> ids, special;
    (*tokenizer)->encode(text, &ids);
    (*tokenizer)->encode_with_specials(text, &special);
    ids.insert(ids.end(), special.begin(), special.end());
    if (is_valid_utf8(text)) {
      std::vector<std::uint32_t> whole, parts;
      (*tokenizer)->encode(text, &whole);
      const std::size_t cut = (*tokenizer)->last_cut(text);
      expect(cut == 0 || cut < text.size(), "cuts lie within the text");
      (*tokenizer)->encode_part(text.substr(0, cut), {true, false}, &parts);
      (*tokenizer)->encode_part(text.substr(cut), {cut == 0, true}, &parts);
      expect(parts == whole, "parts have the ids of the whole");
    }
    for (const std::uint32_t id : ids) expect(id < (*tokenizer)->vocab_size(), "ids are in range");
    expect((*tokenizer)->decode(ids).has_value(), "what was encoded decodes");
  }
}

}  // namespace

// A field of a protobuf message that holds bytes.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// A piece of a SentencePiece model: text, score (as the four bytes of a float) and type.
std::string piece(const std::string& text, const std::string& score, char type) {
  return field(1, field(1, text) + "\x15" + score + std::string{'\x18', type});
}

std::vector<std::string> fuzz_seeds() {
  const std::string zero(4, '\0'), low("\0\0\x80\xbf", 4);
  const std::string sentencepiece =
      piece("<unk>", zero, 2) + piece("</s>", zero, 3) + piece("a", low, 1) + piece("aa", zero, 1) +
      piece("<0x0A>", zero, 6) + piece("ab", zero, 4) + piece("\xE2\x96\x81", low, 1) +
      field(2, std::string("\x18\x02\xd0\x02\x01", 5)) +     // BPE, ends at 1
      field(3, std::string("\x18\x01\x20\x00\x28\x01", 6));  // spaces as they are
  return {
      R"({"added_tokens":[{"id":3,"content":"<e>","special":true,"lstrip":true},)"
      R"({"id":4,"content":"ba"}],
          "normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Replace",
          "pattern":{"String":"z"},"content":"a"}]},"pre_tokenizer":{"type":"Sequence",)"
      R"("pretokenizers":[
          {"type":"Digits","individual_digits":true},)"
      R"({"type":"Split","pattern":{"Regex":"\\s+(?!\\S)|\\p{L}+"},
          "behavior":"MergedWithNext","invert":true},)"
      R"({"type":"ByteLevel","add_prefix_space":false}]},
          "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<e>"}}]},
          "model":{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2,"</s>":5},)"
      R"("merges":["a b"]}})",
      R"({"added_tokens":[{"id":1,"content":"<eos>","special":true}],)"
      R"("normalizer":{"type":"Prepend","prepend":"x"},
          "pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first",)"
      R"("split":true},
          "model":{"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":"<unk>",
          "vocab":{"<unk>":0,"<eos>":1,"<0x0A>":2,"a":3,"\u2581":4,"\u2581a":5},
          "merges":[["\u2581","a"]]}})",
      // Ids with holes and twice, the same token twice, flags, steps before and behind ByteLevel.
      R"({"version":"1.0","added_tokens":[{"id":9,"content":" a","lstrip":true,"rstrip":true},{
          "id":9,"content":"b",
          "single_word":true,"normalized":true},{"id":2,"content":" a","special":true},{
          "id":4000000000,"content":"</s>"}],
          "normalizer":{"type":"Sequence","normalizers":[{"type":"BertNormalizer","clean_text":true,
          "handle_chinese_chars":true,"strip_accents":null,"lowercase":true},{"type":"Strip",
          "strip_left":true,
          "strip_right":false},{"type":"Replace","pattern":{"Regex":"[^\w\s]{2,}|\x{61}++"},
          "content":"ab"},{"type":"Nmt"},
          {"type":"StripAccents"},{"type":"Lowercase"}]},"pre_tokenizer":{"type":"Sequence",
          "pretokenizers":[
          {"type":"Punctuation","behavior":"Contiguous"},{"type":"WhitespaceSplit"},{
          "type":"ByteLevel","add_prefix_space":true,
          "use_regex":false},{"type":"Digits","individual_digits":true}]},"post_processor":{
          "type":"RobertaProcessing",
          "cls":["</s>",3]},"padding":{"strategy":"BatchLongest"},"model":{"type":"BPE",
          "fuse_unk":true,"unk_token":"b",
          "vocab":{"a":0,"b":1,"ab":2},"merges":["#version","a b"]}})",
      R"({"added_tokens":[{"id":0,"content":"</s>"}],"pre_tokenizer":{"type":"Sequence",
          "pretokenizers":[{"type":"Whitespace"},
          {"type":"CharDelimiterSplit","delimiter":"b"},{"type":"Metaspace","replacement":"_",
          "add_prefix_space":true,
          "str_rep":"_"},{"type":"BertPreTokenizer"}]},"model":{"continuing_subword_prefix":"##",
          "end_of_word_suffix":"</w>","byte_fallback":false,"ignore_merges":true,"vocab":{"a":0,
          "##b</w>":1,"ab</w>":2,"##a":3},
          "merges":[["a","##b</w>"]]}})",
      sentencepiece,
  };
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace tailor;
  const std::string_view bytes = fuzz::as_text(input, size);
  fuzz::check(tokenizers::read_tokenizer_json(bytes, {}, "fuzz.json"));
  fuzz::check(tokenizers::read_sentencepiece_model(bytes, "fuzz.json"));
  return 0;
}
