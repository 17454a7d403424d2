// SPDX-License-Identifier: Apache-2.0
// The YAML of the Megatron MoE ModelZoo: sections at the margin (MODEL_ARGS, ENV_VARS, ...), one
// `key: value` a line below them, lists in brackets or one `- item` a line.

#include <algorithm>

#include "launch/flags.h"
#include "launch/script.h"

namespace trifold::launch {
namespace {

std::string trim(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return std::string(text.substr(from, text.find_last_not_of(" \t\r") - from + 1));
}

bool opens_quote(const std::string& text) {
  return !text.empty() && (text[0] == '\'' || text[0] == '"');
}

// A scalar without its quotes and trailing comment.
std::string scalar(std::string_view raw) {
  std::string text = trim(raw);
  if (opens_quote(text)) {
    const std::size_t end = text.find(text[0], 1);
    // The zoo pastes values into a shell, so quotes may stand inside quotes.
    if (end != std::string::npos) return scalar(text.substr(1, end - 1));
  }
  const std::size_t comment = text.find(" #");
  if (comment != std::string::npos) text = trim(text.substr(0, comment));
  return !text.empty() && text[0] == '#' ? std::string() : text;
}

// Begun and not ended: what a file that was cut off looks like.
const char* torn(const std::string& raw) {
  if (opens_quote(raw)) return raw.find(raw[0], 1) == std::string::npos ? "quote" : nullptr;
  const std::string text = scalar(raw);
  if (!text.empty() && text[0] == '[' && text.back() != ']') {
    const bool formula = text.find("]*") != std::string::npos;  // [0]*3+[1]*58
    return formula ? nullptr : "list";
  }
  const std::size_t reference = text.find("${");
  return reference != std::string::npos && text.find('}', reference) == std::string::npos
             ? "variable"
             : nullptr;
}

std::vector<std::string> list_items(std::string_view inside) {
  std::vector<std::string> items;
  while (!inside.empty()) {
    const std::size_t comma = inside.find(',');
    const std::string item = scalar(inside.substr(0, comma));
    if (!item.empty()) items.push_back(item);
    inside = comma == std::string_view::npos ? std::string_view() : inside.substr(comma + 1);
  }
  return items;
}

// ${NAME} from the variables; what stays is known only at run time.
std::string substitute(std::string text, const Environment& variables) {
  for (std::size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at + 1)) {
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos) break;
    const auto known = variables.find(text.substr(at + 2, end - at - 2));
    if (known != variables.end()) text.replace(at, end - at + 1, known->second);
  }
  return text;
}

class Reader {
 public:
  Reader(std::string file, const Environment& variables)
      : file_(std::move(file)), variables_(variables) {}

  Result<void> line(std::string_view raw, int number) {
    const std::string text = trim(raw);
    if (text.empty() || text[0] == '#' || text == "---") return {};
    const std::string where = place(file_, number);
    if (raw.find('\t') < raw.find_first_not_of(" \t"))
      return input_error("YAML is not indented with tabs", where);
    if (starts_item(text)) return item(trim(text.substr(1)), where);
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos)
      return input_error("'" + text + "' is no 'key: value' line", where, "was the file cut off?");
    const std::string key = scalar(text.substr(0, colon));
    const std::string value = trim(text.substr(colon + 1));
    if (const char* what = torn(value))
      return input_error(std::string("a ") + what + " begins and does not end", where,
                         "was the file cut off?");
    if (raw[0] != ' ') {
      section_ = key;
      if (!scalar(value).empty()) script_.not_understood.push_back(text);
      return {};
    }
    entry(key, value, number);
    return {};
  }

  LaunchScript take() {
    std::vector<Argument> kept;
    for (Argument& argument : script_.arguments.items) {
      const bool unknown = std::any_of(argument.values.begin(), argument.values.end(),
                                       [](const std::string& v) { return v.find('$') != v.npos; });
      (unknown ? script_.unresolved : kept).push_back(std::move(argument));
    }
    script_.arguments.items = std::move(kept);
    return std::move(script_);
  }

 private:
  static bool starts_item(const std::string& text) {
    return text == "-" || text.substr(0, 2) == "- ";
  }

  Result<void> item(const std::string& value, const std::string& where) {
    if (script_.arguments.items.empty() || section_ != "MODEL_ARGS")
      return input_error("a list item without a flag", where);
    script_.arguments.items.back().values.push_back(substitute(scalar(value), variables_));
    return {};
  }

  void entry(const std::string& key, const std::string& raw, int number) {
    const std::string value = substitute(scalar(raw), variables_);
    if (section_ == "ENV_VARS") {
      script_.environment[key] = value;
      variables_.emplace(key, value);
    } else if (section_ != "MODEL_ARGS") {
      script_.not_understood.push_back("line " + std::to_string(number) + ": " + section_ + "." +
                                       key);
    } else if (value == "false" || value == "False" || value == "null") {
      return;  // the flag is not given
    } else if (value == "true" || value == "True" || value.empty()) {
      script_.arguments.items.push_back({key, {}, number});
    } else if (raw[0] == '[' && value.back() == ']') {
      script_.arguments.items.push_back(
          {key, list_items(std::string_view(value).substr(1, value.size() - 2)), number});
    } else {
      script_.arguments.items.push_back({key, values(key, raw, value), number});
    }
  }

  // The zoo pastes values behind their flags, so a flag of many takes them separated by blanks.
  static std::vector<std::string> values(const std::string& key, const std::string& raw,
                                         const std::string& value) {
    const Flag* flag = find_flag(key);
    if (opens_quote(raw) || flag == nullptr || flag->arity == 1 || flag->arity == 0) return {value};
    std::vector<std::string> words;
    for (std::size_t at = 0; at < value.size();) {
      const std::size_t end = std::min(value.find(' ', at), value.size());
      if (end > at) words.push_back(value.substr(at, end - at));
      at = end + 1;
    }
    return words;
  }

  std::string file_;
  Environment variables_;
  std::string section_;
  LaunchScript script_;
};

}  // namespace

Result<LaunchScript> parse_model_zoo_yaml(std::string_view text, const std::string& file,
                                          const Environment& variables) {
  Reader reader(file, variables);
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    TRIFOLD_TRY(reader.line(text.substr(0, end), number));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return reader.take();
}

}  // namespace trifold::launch
