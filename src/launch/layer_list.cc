// SPDX-License-Identifier: Apache-2.0
#include "launch/layer_list.h"

#include <algorithm>
#include <cctype>

namespace trifold::launch {
namespace {

constexpr std::size_t kMostLayers = 100000;

// expression = term {"+" term}; term = factor {"*" factor}; factor = integer | list | "(" .. ")".
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  bool parse(LayerList& out) { return expression(out) && (skip(), at_ == text_.size()); }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool expression(LayerList& out) {
    if (!term(out)) return false;
    while (take('+')) {
      LayerList right;
      if (!term(right) || right.is_list != out.is_list) return false;
      out.every += right.every;
      out.list.insert(out.list.end(), right.list.begin(), right.list.end());
      if (out.list.size() > kMostLayers) return false;
    }
    return true;
  }

  bool term(LayerList& out) {
    if (!factor(out)) return false;
    while (take('*')) {
      LayerList right;
      if (!factor(right) || (right.is_list && out.is_list)) return false;
      if (!out.is_list && !right.is_list) {
        out.every *= right.every;
        continue;
      }
      if (right.is_list) std::swap(out, right);
      const std::vector<int> once = out.list;
      const std::size_t times = static_cast<std::size_t>(std::max(0, right.every));
      if (times * std::max<std::size_t>(1, once.size()) > kMostLayers) return false;
      out.list.clear();
      for (std::size_t i = 0; i < times; ++i)
        out.list.insert(out.list.end(), once.begin(), once.end());
    }
    return true;
  }

  bool factor(LayerList& out) {
    if (take('(')) return ++depth_ < 50 && expression(out) && take(')');
    if (!take('[')) return integer(out.every);
    out.is_list = true;
    if (take(']')) return true;
    do {
      int value = 0;
      if (!integer(value)) return false;
      out.list.push_back(value);
    } while (take(','));
    return take(']');
  }

  bool integer(int& out) {
    skip();
    const std::size_t from = at_;
    out = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0)
      out = out * 10 + (text_[at_++] - '0');
    return at_ > from && at_ - from < 7;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

std::string runs(const std::vector<int>& list) {
  std::string text;
  for (std::size_t i = 0; i < list.size();) {
    std::size_t end = i;
    while (end < list.size() && list[end] == list[i]) ++end;
    text += (text.empty() ? "[" : "+[") + std::to_string(list[i]) + "]";
    if (end - i > 1) text += "*" + std::to_string(end - i);
    i = end;
  }
  return "(" + text + ")";
}

}  // namespace

Result<LayerList> parse_layer_list(std::string_view text, const std::string& where) {
  LayerList list;
  if (!Parser(text).parse(list))
    return input_error("'" + std::string(text) + "' is not a list of layers", where,
                       "write an integer or a list such as ([0]*3+[1]*58)");
  return list;
}

std::string print_layer_list(const std::vector<int>& list) {
  std::string best = runs(list);
  for (std::size_t period = 2; period <= list.size() / 2 && period <= 8; ++period) {
    if (list.size() % period != 0) continue;
    bool repeats = true;
    for (std::size_t i = period; i < list.size(); ++i)
      repeats = repeats && list[i] == list[i - period];
    if (!repeats) continue;
    std::string text = "([";
    for (std::size_t i = 0; i < period; ++i) text += (i > 0 ? "," : "") + std::to_string(list[i]);
    text += "]*" + std::to_string(list.size() / period) + ")";
    if (text.size() < best.size()) best = text;
  }
  return best;
}

}  // namespace trifold::launch
