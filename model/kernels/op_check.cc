#include "model/kernels/op_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace tailor::kernels {
namespace {

// The array is the enumeration in the same order; a name out of place does not compile.
constexpr const char* kNames[] = {
#define TAILOR_CASE(NAME) #NAME,
    TAILOR_OPERATORS(TAILOR_CASE)
#undef TAILOR_CASE
};
#define TAILOR_CASE(NAME) +1
constexpr std::size_t kShared = 0 TAILOR_SHARED_OPERATORS(TAILOR_CASE);
#undef TAILOR_CASE

constexpr bool in_order() {
  if (std::size(kNames) != std::size(kOperators)) return false;
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (std::string_view(kNames[i]) != kOperators[i].name) return false;
    if (kOperators[i].cpu_only != (i >= kShared)) return false;
    if (kOperators[i].combinations[0].x == Type::none) return false;
  }
  return true;
}
static_assert(in_order(), "kOperators and TAILOR_OPERATORS differ (op_table.h)");

bool agrees(const Operand& operand, const Combination& combination, Type given) {
  if (given == Type::any) return true;
  if (given == Type::none) return operand.optional;
  return given == type_of(operand, combination);
}

// "x bf16, weight f32"; operands that are not there or not known are left out.
std::string words(std::span<const Operand> operands, std::span<const Type> types) {
  std::string text;
  for (std::size_t i = 0; i < types.size() && i < operands.size(); ++i) {
    if (types[i] == Type::any || (types[i] == Type::none && operands[i].optional)) continue;
    fmt::format_to(std::back_inserter(text), "{}{} {}", text.empty() ? "" : ", ", operands[i].name,
                   type_name(types[i]));
  }
  return text;
}

}  // namespace

std::string_view type_name(Type type) {
  switch (type) {
    case Type::none:
      return "none";
    case Type::f32:
      return "f32";
    case Type::bf16:
      return "bf16";
    case Type::f64:
      return "f64";
    case Type::i64:
      return "i64";
    case Type::X:
      return "X";
    case Type::Y:
      return "Y";
    case Type::any:
      return "any";
    case Type::other:
      break;
  }
  return "another type";
}

const Operator* find_operator(std::span<const Operator> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Operator& line) { return name == line.name; });
  return found == table.end() ? nullptr : &*found;
}

std::span<const Operand> inputs_of(const Operator& line) {
  std::size_t count = 0;
  while (count < std::size(line.inputs) && line.inputs[count].name != nullptr) ++count;
  return {line.inputs, count};
}

std::span<const Operand> outputs_of(const Operator& line) {
  std::size_t count = 0;
  while (count < std::size(line.outputs) && line.outputs[count].name != nullptr) ++count;
  return {line.outputs, count};
}

std::span<const Combination> combinations_of(const Operator& line) {
  std::size_t count = 0;
  while (count < std::size(line.combinations) && line.combinations[count].x != Type::none) ++count;
  return {line.combinations, count};
}

Type type_of(const Operand& operand, const Combination& combination) {
  if (operand.type == Type::X) return combination.x;
  return operand.type == Type::Y ? combination.y : operand.type;
}

const Combination* find_combination(const Operator& line, std::span<const Type> inputs,
                                    std::span<const Type> outputs) {
  const auto wanted_in = inputs_of(line);
  const auto wanted_out = outputs_of(line);
  if (inputs.size() != wanted_in.size()) return nullptr;
  if (!outputs.empty() && outputs.size() != wanted_out.size()) return nullptr;
  for (const Combination& combination : combinations_of(line)) {
    bool all = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      all = all && agrees(wanted_in[i], combination, inputs[i]);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      all = all && agrees(wanted_out[i], combination, outputs[i]);
    }
    if (all) return &combination;
  }
  return nullptr;
}

std::string call_text(const Operator& line, std::span<const Type> inputs,
                      std::span<const Type> outputs) {
  std::string text = fmt::format("{} {}", line.name, words(inputs_of(line), inputs));
  const std::string results = words(outputs_of(line), outputs);
  if (!results.empty()) text += " -> " + results;
  return text;
}

std::string refusal(const Operator& line, std::span<const Type> inputs,
                    std::span<const Type> outputs) {
  std::string text =
      fmt::format("tailor::{} is not for these types; ", call_text(line, inputs, outputs));
  const auto known = combinations_of(line);
  if (known.empty()) return text + "it takes none (model/kernels/op_table.h)";
  text += "it takes";
  for (const Combination& combination : known) {
    text += &combination == known.data() ? " " : "; ";
    const auto all = [&](std::span<const Operand> operands) {
      std::vector<Type> types;
      for (const Operand& operand : operands) types.push_back(type_of(operand, combination));
      return types;
    };
    const std::vector<Type> takes = all(inputs_of(line));
    const std::vector<Type> gives = all(outputs_of(line));
    text += words(inputs_of(line), takes);
    if (!gives.empty()) text += " -> " + words(outputs_of(line), gives);
  }
  return text + " (model/kernels/op_table.h)";
}

bool Sizes::fit(const char* shape, std::span<const std::int64_t> sizes) {
  if (shape[0] == '*') return true;
  std::size_t dim = 0;
  for (const char* at = shape; *at != '\0'; ++at) {
    if (*at == ' ') continue;
    const std::int64_t factor = *at >= '0' && *at <= '9' ? *at++ - '0' : 1;
    if (dim == sizes.size()) return false;
    const std::int64_t size = sizes[dim++];
    if (size % factor != 0) return false;
    const auto letter = static_cast<std::size_t>(*at - 'a');
    if (known_[letter] && of_[letter] != size / factor) return false;
    known_[letter] = true;
    of_[letter] = size / factor;
  }
  return dim == sizes.size();
}

}  // namespace tailor::kernels
