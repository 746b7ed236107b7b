#include "base/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace tailor {

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  Impl() {
    TAILOR_CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
  }
  ~Impl() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, std::size_t size) {
  TAILOR_CHECK(EVP_DigestUpdate(impl_->context, data, size) == 1);
}

std::string Sha256::hex_so_far() const {
  Sha256 copy;
  TAILOR_CHECK(EVP_MD_CTX_copy_ex(copy.impl_->context, impl_->context) == 1);
  return copy.hex();
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TAILOR_CHECK(EVP_DigestFinal_ex(impl_->context, digest, &size) == 1);
  std::string out;
  out.reserve(2 * size);
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

Result<std::string> sha256_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return error(errno == ENOENT ? Code::kNotFound : Code::kUnavailable,
                 fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  Sha256 hash;
  std::vector<char> block(1 << 20);
  std::size_t got = 0;
  while ((got = std::fread(block.data(), 1, block.size(), file)) > 0) {
    hash.update(block.data(), got);
  }
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) return error(Code::kUnavailable, fmt::format("cannot read {}", path));
  return hash.hex();
}

}  // namespace tailor
