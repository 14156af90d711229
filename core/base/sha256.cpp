#include "core/base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "core/base/error.h"

namespace speclab {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool ended = false;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  SPECLAB_CHECK(state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
                "OpenSSL has no SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  SPECLAB_CHECK(!state_->ended && EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1,
                "SHA-256 after its end");
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  unsigned int length = 0;
  SPECLAB_CHECK(!state_->ended && EVP_DigestFinal_ex(state_->context, digest.data(), &length) == 1 &&
                    length == digest.size(),
                "SHA-256 ended twice");
  state_->ended = true;
  std::string out;
  for (const unsigned char byte : digest) out += fmt::format("{:02x}", byte);
  return out;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

}  // namespace speclab
