#include "text/grammar/regex_node.h"

#include <utility>

#include "text/unicode/utf8.h"

namespace strata {

RegexPtr RegexSet(CharSet set) {
  return std::make_shared<RegexNode>(
      RegexNode{.kind = RegexNode::Kind::kSet, .set = std::move(set)});
}

RegexPtr RegexConcat(std::vector<RegexPtr> children) {
  if (children.size() == 1) {
    return children[0];
  }
  return std::make_shared<RegexNode>(
      RegexNode{.kind = RegexNode::Kind::kConcat, .children = std::move(children)});
}

RegexPtr RegexAlternate(std::vector<RegexPtr> children) {
  if (children.size() == 1) {
    return children[0];
  }
  return std::make_shared<RegexNode>(
      RegexNode{.kind = RegexNode::Kind::kAlternate, .children = std::move(children)});
}

RegexPtr RegexRepeat(RegexPtr child, size_t min, size_t max) {
  return std::make_shared<RegexNode>(RegexNode{
      .kind = RegexNode::Kind::kRepeat, .children = {std::move(child)}, .min = min, .max = max});
}

RegexPtr RegexText(std::string_view text) {
  std::vector<RegexPtr> characters;
  for (size_t at = 0; at < text.size();) {
    characters.push_back(RegexSet(CharSet::Of(NextChar(text, &at))));
  }
  return RegexConcat(std::move(characters));
}

}  // namespace strata
