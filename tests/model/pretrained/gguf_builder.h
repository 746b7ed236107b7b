// Builds GGUF files for tests, byte by byte, well-formed or not.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tailor::pretrained {

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;

  template <typename T>
  static std::string raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string text(std::string_view value) {
    return raw<std::uint64_t>(value.size()) + std::string(value);
  }

  GgufBuilder& entry(std::string_view key, std::uint32_t type, std::string_view value) {
    entries_ += text(key) + raw(type) + std::string(value);
    ++entry_count_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t value) { return entry(key, 4, raw(value)); }
  GgufBuilder& f32(std::string_view key, float value) { return entry(key, 6, raw(value)); }
  GgufBuilder& flag(std::string_view key, bool value) {
    return entry(key, 7, raw<std::uint8_t>(value ? 1 : 0));
  }
  GgufBuilder& str(std::string_view key, std::string_view value) {
    return entry(key, 8, text(value));
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw<std::uint32_t>(8) + raw<std::uint64_t>(values.size());
    for (const std::string& value : values) bytes += text(value);
    return entry(key, 9, bytes);
  }
  template <typename T>
  GgufBuilder& numbers(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    std::string bytes = raw(type) + raw<std::uint64_t>(values.size());
    for (const T value : values) bytes += raw(value);
    return entry(key, 9, bytes);
  }

  /// Adds a tensor of `type` whose data are `data`; `shape` with the outermost first.
  GgufBuilder& tensor(std::string_view name, std::vector<std::uint64_t> shape, std::uint32_t type,
                      std::string_view data) {
    tensor_at(name, std::move(shape), type, data_.size());
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  GgufBuilder& floats(std::string_view name, std::vector<std::uint64_t> shape,
                      const std::vector<float>& values) {
    return tensor(name, std::move(shape), 0,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  /// A table entry alone, without data of its own.
  GgufBuilder& tensor_at(std::string_view name, std::vector<std::uint64_t> shape,
                         std::uint32_t type, std::uint64_t offset) {
    table_ += text(name) + raw(static_cast<std::uint32_t>(shape.size()));
    for (std::size_t i = shape.size(); i-- > 0;) table_ += raw(shape[i]);
    table_ += raw(type) + raw(offset);
    ++tensor_count_;
    return *this;
  }

  std::string header() const {
    std::string bytes = "GGUF" + raw(version) + raw(tensor_count_) + raw(entry_count_);
    return bytes + entries_ + table_;
  }
  std::string bytes() const {
    std::string all = header();
    all.resize((all.size() + alignment - 1) / alignment * alignment);
    return all + data_;
  }

 private:
  std::uint64_t entry_count_ = 0, tensor_count_ = 0;
  std::string entries_, table_, data_;
};

}  // namespace tailor::pretrained
