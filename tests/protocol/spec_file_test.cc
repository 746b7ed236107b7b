// spec.json written by hand: what may be left out, and that docs/trainer.md says so.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "protocol/convert.h"
#include "tailor/v1/trial.pb.h"

namespace tailor::protocol {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Field = google::protobuf::FieldDescriptor;

std::string document() {
  std::ifstream in(std::string(TAILOR_SOURCE_DIR) + "/docs/trainer.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty());
  return text.str();
}

/// The text block of the document.
std::string smallest() {
  const std::string text = document();
  const std::size_t begin = text.find("```json\n") + 8;
  return text.substr(begin, text.find("```", begin) - begin);
}

/// The table of the document: field -> default.
std::map<std::string, std::string> documented() {
  std::map<std::string, std::string> out;
  std::istringstream lines(document());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const std::size_t first = line.find(" | ");
    const std::size_t second = line.find(" | ", first + 1);
    const std::string fallback = line.substr(first + 3, second - first - 3);
    const std::string names = line.substr(0, first);
    for (std::size_t at = names.find('`'); at != std::string::npos; at = names.find('`', at + 1)) {
      const std::size_t end = names.find('`', at + 1);
      out[names.substr(at + 1, end - at - 1)] = fallback;
      at = end;
    }
  }
  return out;
}

void leaves(const google::protobuf::Descriptor& type, const std::string& prefix,
            std::map<std::string, const Field*>* out) {
  for (int i = 0; i < type.field_count(); ++i) {
    const Field* field = type.field(i);
    const std::string path = prefix + field->name();
    if (field->message_type() != nullptr && !field->is_repeated()) {
      leaves(*field->message_type(), path + ".", out);
    } else {
      (*out)[path] = field;
    }
  }
}

std::map<std::string, const Field*> leaves() {
  std::map<std::string, const Field*> out;
  leaves(*v1::TrialSpec::descriptor(), "", &out);
  return out;
}

json::json_pointer pointer(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return json::json_pointer("/" + path);
}

/// What Tailor makes of a spec.json.
json whole(const json& given) {
  const auto spec = trial_spec_from_json(given.dump());
  EXPECT_TRUE(spec.has_value()) << spec.error().to_string();
  return spec ? json::parse(to_json(*spec)) : json();
}

std::string refusal(const json& given) {
  const auto spec = trial_spec_from_json(given.dump());
  EXPECT_FALSE(spec.has_value()) << given.dump();
  return spec ? "" : spec.error().message();
}

double number_in(const json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

TEST(SpecFile, TheSmallestOneOfTheDocumentIsReadAndHasTheDefaultsOfTheHeader) {
  const auto spec = trial_spec_from_json(smallest());
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  TrialSpec expected;
  expected.architecture.d_model = 32;
  expected.architecture.heads = 4;
  expected.architecture.kv_heads = 4;
  expected.architecture.head_dim = 8;
  expected.architecture.vocab_size = 64;
  expected.architecture.widths = {{48}, {48}};
  expected.data = {"train.tokens", "validation.tokens", 16};
  expected.train.tokens = 5120;
  expected.train.batch_tokens = 128;
  EXPECT_EQ(*spec, expected);
  EXPECT_EQ(spec->train.optimizer.clip, 1.0);
  EXPECT_EQ(spec->train.schedule.warmup_fraction, 0.01);
  EXPECT_EQ(spec->train.schedule.warmup_steps, -1);
}

TEST(SpecFile, EveryFieldIsInTheDocumentsTableAndHasItsDefaultWhenItIsAbsent) {
  const auto table = documented();
  const json spec = whole(json::parse(smallest()));
  for (const auto& [path, field] : leaves()) {
    ASSERT_TRUE(table.contains(path)) << path << " is not in docs/trainer.md";
    const std::string& said = table.at(path);
    if (said == "required" || said == "as `heads`") continue;
    const json& value = spec.at(pointer(path));
    if (field->is_repeated()) {
      EXPECT_EQ(value.dump(), said) << path;
    } else if (field->cpp_type() == Field::CPPTYPE_STRING ||
               field->cpp_type() == Field::CPPTYPE_ENUM) {
      EXPECT_EQ(value.get<std::string>(), said == "\"\"" ? "" : said) << path;
    } else if (field->cpp_type() == Field::CPPTYPE_BOOL) {
      EXPECT_EQ(value.dump(), said) << path;
    } else {
      EXPECT_EQ(number_in(value), std::stod(said)) << path;
    }
  }
  for (const auto& [path, said] : table) {
    EXPECT_TRUE(leaves().contains(path)) << path << " is in docs/trainer.md and does not exist";
  }
}

TEST(SpecFile, AFieldWhoseDefaultIsNotZeroTellsZeroFromAbsent) {
  const json defaults = whole(json::parse(smallest()));
  int tried = 0;
  for (const auto& [path, field] : leaves()) {
    const bool number = field->cpp_type() != Field::CPPTYPE_STRING &&
                        field->cpp_type() != Field::CPPTYPE_ENUM &&
                        field->cpp_type() != Field::CPPTYPE_MESSAGE && !field->is_repeated();
    if (!number || documented().at(path) == "required" || path == "architecture.kv_heads") continue;
    const bool flag = field->cpp_type() == Field::CPPTYPE_BOOL;
    const json& value = defaults.at(pointer(path));
    const bool zero = flag ? !value.get<bool>() : number_in(value) == 0;
    EXPECT_TRUE(zero || field->has_presence())
        << path << ": its default is not 0, so it must be `optional` in the .proto";
    json given = json::parse(smallest());
    given[pointer(path)] = flag ? json(false) : json(0);
    if (path.starts_with("architecture.rope_theta") || path.starts_with("architecture.norm_eps")) {
      EXPECT_THAT(refusal(given), HasSubstr(path.substr(path.find('.') + 1)));
      continue;
    }
    const json read = whole(given);
    if (read.is_null()) continue;
    ++tried;
    EXPECT_EQ(
        flag ? (read.at(pointer(path)).get<bool>() ? 1.0 : 0.0) : number_in(read.at(pointer(path))),
        0)
        << path;
  }
  EXPECT_GE(tried, 25);
}

TEST(SpecFile, WarmUpIsGivenInOneWay) {
  const auto schedule = [](const char* text) {
    json given = json::parse(smallest());
    given["train"]["schedule"] = json::parse(text);
    return given;
  };
  const auto read = [&](const char* text) {
    return trial_spec_from_json(schedule(text).dump()).value().train.schedule;
  };
  EXPECT_EQ(read(R"({"warmup_fraction": 0.2})").warmup_fraction, 0.2);
  EXPECT_EQ(read(R"({"warmup_fraction": 0.2})").warmup_steps, -1);
  EXPECT_EQ(read(R"({"warmup_fraction": 0})").warmup_fraction, 0.0);
  EXPECT_EQ(read(R"({"warmup_steps": 0})").warmup_steps, 0);
  EXPECT_EQ(read(R"({"warmup_steps": 7})").warmup_steps, 7);
  EXPECT_EQ(read(R"({"warmup_fraction": 0.2, "warmup_steps": -1})").warmup_fraction, 0.2);
  EXPECT_THAT(refusal(schedule(R"({"warmup_fraction": 0.2, "warmup_steps": 7})")),
              AllOf(HasSubstr("0.2"), HasSubstr("7"), HasSubstr("give one")));
  EXPECT_THAT(refusal(schedule(R"({"warmup_fraction": 0.2, "warmup_steps": 0})")),
              HasSubstr("give one"));
  // As workers of 0.1 wrote it: every field, the fraction's default beside the steps.
  json worker = schedule(R"({"warmup_fraction": 0.01, "warmup_steps": "7"})");
  worker["token"] = "12";
  EXPECT_EQ(trial_spec_from_json(worker.dump()).value().train.schedule.warmup_steps, 7);
  // What Tailor writes itself has one, so that nobody edits the other in vain.
  TrialSpec spec = trial_spec_from_json(smallest()).value();
  EXPECT_THAT(to_json(spec), HasSubstr("warmup_fraction"));
  spec.train.schedule.warmup_steps = 7;
  EXPECT_THAT(to_json(spec), Not(HasSubstr("warmup_fraction")));
  EXPECT_EQ(trial_spec_from_json(to_json(spec)).value(), spec);
}

TEST(SpecFile, AllThatIsMissingIsNamedAtOnce) {
  const std::string message = refusal(json::object());
  for (const auto& [path, said] : documented()) {
    if (said == "required") {
      EXPECT_THAT(message, HasSubstr(path));
    } else {
      EXPECT_THAT(message, Not(HasSubstr(path + ","))) << path;
    }
  }
  json given = json::parse(smallest());
  given["train"].erase("tokens");
  EXPECT_THAT(refusal(given), AllOf(HasSubstr("train.tokens is missing"), HasSubstr("trainer.md")));
}

TEST(SpecFile, UnknownKeysAreNamedAtOnceWithWhatTheyMayHaveMeant) {
  json given = json::parse(smallest());
  given["train"]["warmup_steps"] = 5;
  given["train"]["optimizer"]["weight_decai"] = 0.1;
  given["architecture"]["layers"] = 2;
  given["architecture"]["widths"][0]["dh"] = json::array({3});
  const std::string message = refusal(given);
  EXPECT_THAT(message, HasSubstr("train.warmup_steps (did you mean train.schedule.warmup_steps?)"));
  EXPECT_THAT(message, HasSubstr("train.optimizer.weight_decai (did you mean weight_decay?)"));
  EXPECT_THAT(message, HasSubstr("architecture.layers"));
  EXPECT_THAT(message, HasSubstr("architecture.widths.dh"));
}

TEST(SpecFile, OneFieldInTwoSpellingsIsRefused) {
  json given = json::parse(smallest());
  given["train"]["batchTokens"] = 256;
  EXPECT_THAT(refusal(given), HasSubstr("batch_tokens in another spelling, given twice"));
}

TEST(SpecFile, AnOlmo2HasItsOwnDefaults) {
  json given = json::parse(smallest());
  given["architecture"]["family"] = "FAMILY_OLMO2";
  const shape::Architecture olmo = trial_spec_from_json(given.dump()).value().architecture;
  EXPECT_EQ(olmo.ffn_norm, shape::FfnNorm::kPerSubPost);
  EXPECT_EQ(olmo.norm_eps, 1e-6);
  EXPECT_EQ(olmo.rope_theta, 500'000.0);
}

TEST(SpecFile, AMessageOfAnEarlierVersionKeepsItsMeaning) {
  // It sent no zeros: what is absent in it is 0, not the default.
  v1::TrialSpec proto;
  to_proto(trial_spec_from_json(smallest()).value(), &proto);
  proto.mutable_train()->mutable_optimizer()->clear_clip();
  proto.mutable_train()->mutable_optimizer()->clear_weight_decay();
  proto.mutable_train()->mutable_schedule()->clear_warmup_steps();
  proto.mutable_architecture()->clear_tie_embeddings();
  const auto spec = from_proto(proto);
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->train.optimizer.clip, 0);
  EXPECT_EQ(spec->train.optimizer.weight_decay, 0);
  EXPECT_EQ(spec->train.schedule.warmup_steps, 0);
  EXPECT_FALSE(spec->architecture.tie_embeddings);
}

}  // namespace
}  // namespace tailor::protocol
