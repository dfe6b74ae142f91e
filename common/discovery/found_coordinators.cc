#include "common/discovery/found_coordinators.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/printable.h"

namespace strata {
namespace {

constexpr size_t kShownNameBytes = 64;
constexpr size_t kDigestDigits = 64;
constexpr size_t kShownDigits = 16;
// Of an answer: "=", interface, protocol, name, type, domain, host, address, port, facts.
enum Field { kKind, kInterface, kProtocol, kName, kType, kDomain, kHost, kAddress, kPort, kFacts };

// "\032" and "\;" as what they stand for.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 3);
    unsigned number = 0;
    const auto [rest, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc() && rest == digits.data() + 3 && number < 256) {
      out += static_cast<char>(number);
      i += 3;
    } else {
      out += text[++i];
    }
  }
  return out;
}

// The value of "key=value" among facts as in `"a=b" "c=d"`; none where there is no such fact.
std::optional<std::string> FactOf(std::string_view facts, std::string_view key) {
  size_t begin = 0;
  while ((begin = facts.find('"', begin)) != facts.npos) {
    size_t end = begin + 1;
    while (end < facts.size() && facts[end] != '"') {
      end += facts[end] == '\\' ? 2 : 1;
    }
    if (end >= facts.size()) {
      return std::nullopt;
    }
    const std::string fact = Unescaped(facts.substr(begin + 1, end - begin - 1));
    if (fact.size() > key.size() && fact.starts_with(key) && fact[key.size()] == '=') {
      return fact.substr(key.size() + 1);
    }
    begin = end + 1;
  }
  return std::nullopt;
}

std::optional<uint16_t> PortOf(std::string_view text) {
  uint16_t port = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole = error == std::errc() && rest == text.data() + text.size() && port != 0;
  return whole ? std::optional(port) : std::nullopt;
}

// Whether it is an address that can be dialled as it stands.
bool IsDialled(const std::string& text) {
  in_addr v4{};
  in6_addr v6{};
  if (text.find('\0') != text.npos) {
    return false;  // inet_pton would read what is before it.
  }
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 16 != 0xa9fe && v4.s_addr != 0;  // 169.254.0.0/16, RFC 3927.
  }
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && !IN6_IS_ADDR_LINKLOCAL(&v6) &&
         !IN6_IS_ADDR_UNSPECIFIED(&v6);
}

bool IsDigest(std::string_view text) {
  return text.size() == kDigestDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

std::optional<FoundCoordinator> ReadOne(std::string_view line) {
  std::vector<std::string_view> fields;
  while (fields.size() < kFacts) {
    const size_t cut = line.find(';');
    if (cut == line.npos) {
      return std::nullopt;
    }
    fields.push_back(line.substr(0, cut));
    line.remove_prefix(cut + 1);
  }
  if (fields[kKind] != "=" || fields[kType] != kCoordinatorService) {
    return std::nullopt;
  }
  const auto join_port = PortOf(fields[kPort]);
  const auto port = PortOf(FactOf(line, kPortFact).value_or(""));
  std::string authority = FactOf(line, kAuthorityFact).value_or("");
  std::string address(fields[kAddress]);
  if (!join_port.has_value() || !port.has_value() || !IsDigest(authority) || !IsDialled(address)) {
    return std::nullopt;
  }
  return FoundCoordinator{.name = Printable(Unescaped(fields[kName]), kShownNameBytes),
                          .interface = Printable(fields[kInterface], kShownNameBytes),
                          .address = std::move(address),
                          .join_port = *join_port,
                          .port = *port,
                          .authority_sha256 = std::move(authority)};
}

bool IsIpv6(const FoundCoordinator& one) { return one.address.find(':') != one.address.npos; }
bool IsOwn(const FoundCoordinator& one) {
  return one.address.starts_with("127.") || one.address == "::1";
}

}  // namespace

std::vector<FoundCoordinator> ReadFoundCoordinators(std::string_view said) {
  std::vector<FoundCoordinator> found;
  for (size_t lines = 0; !said.empty() && lines < kMaxFoundLines; ++lines) {
    const size_t end = std::min(said.find('\n'), said.size());
    const std::string_view line = said.substr(0, end);
    said.remove_prefix(std::min(end + 1, said.size()));
    auto one = line.size() <= kMaxFoundLineBytes ? ReadOne(line) : std::nullopt;
    const bool known =
        one.has_value() && std::any_of(found.begin(), found.end(), [&](const auto& before) {
          return before.address == one->address && before.join_port == one->join_port &&
                 before.authority_sha256 == one->authority_sha256;
        });
    if (one.has_value() && !known && found.size() < kMaxFoundCoordinators) {
      found.push_back(*std::move(one));
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(IsOwn(a), IsIpv6(a)) < std::pair(IsOwn(b), IsIpv6(b));
  });
  return found;
}

std::vector<FoundCoordinator> CoordinatorsOf(const std::vector<FoundCoordinator>& found,
                                             std::string_view authority_sha256) {
  std::vector<FoundCoordinator> of;
  std::copy_if(found.begin(), found.end(), std::back_inserter(of),
               [&](const auto& one) { return one.authority_sha256 == authority_sha256; });
  return of;
}

std::string DescribeFound(const std::vector<FoundCoordinator>& found,
                          std::string_view authority_sha256) {
  std::string text;
  for (const FoundCoordinator& one : found) {
    absl::StrAppend(&text, "  ", one.name, " at ", IsIpv6(one) ? "[" : "", one.address,
                    IsIpv6(one) ? "]:" : ":", one.join_port, " (", one.interface, "), of ",
                    one.authority_sha256 == authority_sha256 ? "the token's authority, "
                                                             : "another authority, ",
                    one.authority_sha256.substr(0, kShownDigits), "...\n");
  }
  return text;
}

}  // namespace strata
