#include "model/tokenizers/normalizer.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/tokenizers/expression.h"

namespace tailor::tokenizers {
namespace {

using Kind = NormalizerStep::Kind;

// The library's tables for these are those of Unicode 9 and 8: what has come since is none, and
// what has changed since is as it was.
bool is_mark(char32_t c) {
  if (c == 0x1cf2 || c == 0x1cf3) return true;
  return c != 0x111c9 && is_known_to_unicode(9, c) &&
         (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0;
}

bool is_nonspacing(char32_t c) {
  if (c == 0x1734) return true;
  if (c == 0x1885 || c == 0x1886 || c == 0xa9bd || c == 0x111c9) return false;
  return is_known_to_unicode(8, c) && u_charType(static_cast<UChar32>(c)) == U_NON_SPACING_MARK;
}

bool is_han_block(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

// Of category C, but not what is no character at all.
bool is_control(char32_t c) {
  return is_known_to_unicode(8, c) &&
         (U_GET_GC_MASK(static_cast<UChar32>(c)) &
          (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_CS_MASK)) != 0;
}

// One character of kCleanText.
void clean(char32_t c, std::string* out) {
  if (c == '\t' || c == '\n' || c == '\r') {
    *out += ' ';
  } else if (c != 0 && c != 0xfffd && !is_control(c)) {
    append_utf8(is_white_space(c) ? U' ' : c, out);
  }
}

void clean_nmt(char32_t c, std::string* out) {
  if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
      c == 0x9f) {
    return;
  }
  const bool is_space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                        (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                        c == 0xfeff || c == 0xfffd;
  append_utf8(is_space ? U' ' : c, out);
}

void lowercase(char32_t c, std::string* out) {
  if (c == 0x130) {  // the only character whose small form is two
    *out += "i\xCC\x87";
    return;
  }
  append_utf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))), out);
}

// What a step that looks at one character at a time makes of `c`.
void map_character(Kind kind, char32_t c, std::string* out) {
  switch (kind) {
    case Kind::kLowercase:
      return lowercase(c, out);
    case Kind::kStripAccents:
      if (!is_mark(c)) append_utf8(c, out);
      return;
    case Kind::kStripNonspacing:
      if (!is_nonspacing(c)) append_utf8(c, out);
      return;
    case Kind::kCleanText:
      return clean(c, out);
    case Kind::kPadHan:
      if (!is_han_block(c)) return append_utf8(c, out);
      *out += ' ';
      append_utf8(c, out);
      *out += ' ';
      return;
    case Kind::kNmt:
      return clean_nmt(c, out);
    default:
      TAILOR_CHECK(false, "not a step of single characters");
  }
}

std::string mapped(Kind kind, std::string_view text, std::size_t* head) {
  std::string out;
  out.reserve(text.size());
  const std::size_t head_before = *head;
  *head = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = code_point_at(text, at);
    at += character_bytes(text, at);
    map_character(kind, c, &out);
    if (at <= head_before) *head = out.size();
  }
  return out;
}

// Replaces the ranges (begin, end) of `text`; what comes in stems from the last character of a
// range.
template <typename NextMatch>
std::string replaced(std::string_view text, const std::string& to, NextMatch next,
                     std::size_t* head) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  const std::size_t head_before = *head;
  std::size_t at = 0, begin = 0, end = 0, head_after = 0;
  bool in_head = true;
  while (next(&begin, &end)) {
    out.append(text, at, begin - at);
    if (in_head && begin <= head_before) {
      head_after = out.size();
      // Where the range reaches beyond the head, what comes in lies beyond as well.
      in_head = end <= head_before;
      if (in_head) head_after += to.size();
    } else if (in_head) {
      head_after = out.size() - (begin - head_before);
      in_head = false;
    }
    out += to;
    at = end;
  }
  out.append(text.substr(at));
  if (in_head) head_after = out.size() - (text.size() - head_before);
  *head = head_after;
  return out;
}

std::string in_form(NormalForm form, std::string_view text, std::size_t* head) {
  std::string out = normalized(form, text);
  if (*head == 0 || out == text) return out;
  // The characters that the head may mix with.
  std::size_t end = 0;
  while (end < text.size() && (end < *head || !begins_apart(form, code_point_at(text, end)))) {
    end += character_bytes(text, end);
  }
  if (end == *head) {
    *head = normalized(form, text.substr(0, end)).size();
  } else {
    // The first character of the head and marks behind it: what they become begins with it.
    *head = std::min(out.size(), out.empty() ? 0 : character_bytes(out, 0));
  }
  return out;
}

}  // namespace

struct Normalizer::Impl {
  struct Working {
    NormalizerStep step;
    std::optional<Expression> expression;
    std::optional<TextFinder> finder;
  };
  mutable std::vector<Working> steps;
};

Normalizer::Normalizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

Result<Normalizer> Normalizer::create(std::vector<NormalizerStep> steps) {
  auto impl = std::make_unique<Impl>();
  for (NormalizerStep& step : steps) {
    Impl::Working working{std::move(step), {}, {}};
    if (working.step.kind == Kind::kReplaceMatches) {
      TAILOR_ASSIGN_OR_RETURN(working.expression, Expression::parse(working.step.from));
      TAILOR_ASSIGN_OR_RETURN(working.finder, TextFinder::create(working.expression->icu()));
    }
    impl->steps.push_back(std::move(working));
  }
  return Normalizer(std::move(impl));
}

Normalizer Normalizer::clone() const {
  std::vector<NormalizerStep> steps;
  for (const Impl::Working& working : impl_->steps) steps.push_back(working.step);
  return std::move(*create(std::move(steps)));
}

bool Normalizer::is_empty() const { return impl_->steps.empty(); }

std::string Normalizer::apply(std::string_view text, Part part, std::size_t* head) const {
  std::string out(text);
  for (Impl::Working& working : impl_->steps) {
    const NormalizerStep& step = working.step;
    switch (step.kind) {
      case Kind::kForm:
        out = in_form(step.form, out, head);
        break;
      case Kind::kReplace: {
        if (out.find(step.from) == std::string::npos) break;
        std::size_t at = 0;
        out = replaced(
            out, step.to,
            [&](std::size_t* begin, std::size_t* end) {
              *begin = out.find(step.from, at);
              if (*begin == std::string::npos) return false;
              *end = at = *begin + step.from.size();
              return true;
            },
            head);
        break;
      }
      case Kind::kReplaceMatches: {
        const std::vector<std::pair<std::size_t, std::size_t>> ranges = working.finder->find(out);
        std::size_t i = 0;
        out = replaced(
            out, step.to,
            [&](std::size_t* begin, std::size_t* end) {
              if (i == ranges.size()) return false;
              std::tie(*begin, *end) = ranges[i++];
              return true;
            },
            head);
        break;
      }
      case Kind::kPrepend:
        if (out.empty() || !part.begins) break;
        out.insert(0, step.to);
        if (*head > 0) *head += step.to.size();
        break;
      case Kind::kStrip: {
        if (step.right && part.ends) out.resize(out.size() - white_space_before(out, out.size()));
        if (step.left && part.begins) {
          const std::size_t spaces = white_space_after(out, 0);
          out.erase(0, spaces);
          *head -= std::min(*head, spaces);
        }
        *head = std::min(*head, out.size());
        break;
      }
      default:
        out = mapped(step.kind, out, head);
    }
  }
  return out;
}

bool Normalizer::knows_ends() const {
  return std::any_of(impl_->steps.begin(), impl_->steps.end(), [](const Impl::Working& working) {
    return working.step.kind == Kind::kPrepend || working.step.kind == Kind::kStrip;
  });
}

bool Normalizer::may_cut(char32_t* a, char32_t* b) const {
  for (const Impl::Working& working : impl_->steps) {
    const NormalizerStep& step = working.step;
    std::string left, right;
    append_utf8(*a, &left);
    append_utf8(*b, &right);
    switch (step.kind) {
      case Kind::kForm:
        if (!begins_apart(step.form, *a) || !begins_apart(step.form, *b) ||
            !ends_apart(step.form, *b)) {
          return false;
        }
        left = normalized(step.form, left);
        right = normalized(step.form, right);
        break;
      case Kind::kReplace:
        for (std::string* side : {&left, &right}) {
          if (*side == step.from) {
            *side = step.to;
          } else if (step.from.find(*side) != std::string::npos) {
            return false;
          }
        }
        break;
      case Kind::kReplaceMatches:
        if (working.expression->touches(*a) || working.expression->touches(*b)) return false;
        break;
      case Kind::kPrepend:
        break;
      case Kind::kStrip:
        // A part of nothing but white space would hand its ends on to its neighbours.
        if (is_white_space(*a)) return false;
        break;
      default: {
        std::string mapped_left, mapped_right;
        map_character(step.kind, *a, &mapped_left);
        map_character(step.kind, *b, &mapped_right);
        left = std::move(mapped_left);
        right = std::move(mapped_right);
      }
    }
    if (left.empty() || right.empty()) return false;
    *a = last_code_point(left);
    *b = code_point_at(right, 0);
  }
  return true;
}

}  // namespace tailor::tokenizers
