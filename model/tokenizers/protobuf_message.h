// Walks over the fields of a protobuf message, without the library or the message's definition:
// SentencePiece's models are such messages.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace tailor::tokenizers {

/// One message. REQUIRES: its bytes stay where they are.
class ProtobufMessage {
 public:
  explicit ProtobufMessage(std::string_view message) : rest_(message) {}

  /// The next field; false at the end or at damage.
  bool next() {
    if (rest_.empty() || !ok_) return false;
    const std::uint64_t tag = varint();
    field = tag >> 3;
    number = 0;
    bytes = {};
    switch (tag & 7) {
      case 0:
        number = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        take(varint());
        break;
      case 5:
        take(4);
        if (ok_) std::memcpy(&real, bytes.data(), sizeof real);
        break;
      default:
        ok_ = false;
    }
    return ok_;
  }
  /// No damage so far.
  bool ok() const { return ok_; }

  // Of the field at hand: its number, and its value as its kind has it.
  std::uint64_t field = 0, number = 0;
  std::string_view bytes;
  float real = 0;

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  void take(std::uint64_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return;
    }
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace tailor::tokenizers
