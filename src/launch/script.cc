// SPDX-License-Identifier: Apache-2.0
#include "launch/script.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/json.h"
#include "launch/shell_words.h"

namespace trifold::launch {
namespace {

struct Variable {
  std::vector<std::string> words;
  bool exported = false;
};

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

// The length of NAME in "NAME=..." or "NAME+=...", else 0.
std::size_t assigned_name(const ShellWord& word) {
  std::size_t i = 0;
  while (i < word.text.size() &&
         (std::isalnum(static_cast<unsigned char>(word.text[i])) != 0 || word.text[i] == '_'))
    ++i;
  if (i == 0 || std::isdigit(static_cast<unsigned char>(word.text[0])) != 0) return 0;
  const std::string_view rest = std::string_view(word.text).substr(i);
  return starts_with(rest, "=") || starts_with(rest, "+=") ? i : 0;
}

std::optional<std::int64_t> as_count(const std::string& text) {
  if (text.empty() || text.size() > 9) return std::nullopt;
  for (char c : text)
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return std::nullopt;
  return std::strtoll(text.c_str(), nullptr, 10);
}

class Interpreter {
 public:
  Interpreter(std::string file, const Environment& variables) : file_(std::move(file)) {
    for (const auto& [name, value] : variables) variables_[name].words = {value};
  }

  bool lookup(const std::string& name, std::vector<std::string>& words) const {
    if (name == "@") return true;  // the script's own arguments: none
    const auto at = variables_.find(name);
    if (at == variables_.end()) return false;
    words = at->second.words;
    return true;
  }

  // What stands under a condition or in a loop may or may not run: listed, not believed.
  bool conditional(const std::vector<ShellWord>& words) {
    const std::string& first = words.front().text;
    const bool opens = first == "if" || first == "for" || first == "while" || first == "case";
    const bool closes = first == "fi" || first == "done" || first == "esac";
    if (opens && ++depth_ == 1) list(words, 0);
    if (closes && depth_ > 0) --depth_;
    return depth_ > 0 || opens || closes;
  }

  void statement(const std::vector<ShellWord>& words) {
    if (conditional(words)) return;
    std::size_t i = 0;
    bool exported = false;
    if (i < words.size() && (words[i].text == "export" || words[i].text == "declare" ||
                             words[i].text == "local" || words[i].text == "readonly")) {
      exported = words[i].text == "export";
      for (++i; i < words.size() && starts_with(words[i].text, "-");) ++i;
      if (i < words.size() && assigned_name(words[i]) == 0) return;
    }
    std::vector<std::string> assigned;
    while (i < words.size() && assigned_name(words[i]) > 0) assigned.push_back(assign(words, i));
    if (i >= words.size()) {
      for (const std::string& name : assigned) variables_[name].exported |= exported;
      return;
    }
    for (const std::string& name : assigned)
      variables_[name].exported = true;  // NAME=value command
    command(words, i);
  }

  Result<LaunchScript> finish() {
    if (!found_) use_blocks();
    LaunchScript script;
    TRIFOLD_ASSIGN(arguments, parse_arguments(resolved(), file_));
    script.arguments = std::move(arguments);
    for (const auto& [name, variable] : variables_)
      if (variable.exported && !variable.words.empty()) {
        if (variable.words[0].find('$') == std::string::npos)
          script.environment[name] = variable.words[0];
        else
          not_understood_.push_back("export " + name + "=" + variable.words[0] +
                                    ": its value is only known when the script runs");
      }
    if (nodes_ && per_node_) script.gpus = *nodes_ * *per_node_;
    script.not_understood = std::move(not_understood_);
    return script;
  }

 private:
  // Reads "NAME=value" or "NAME=( ... )" at words[i] and steps over it.
  std::string assign(const std::vector<ShellWord>& words, std::size_t& i) {
    const std::size_t length = assigned_name(words[i]);
    const std::string name = words[i].text.substr(0, length);
    const bool append = words[i].text[length] == '+';
    std::string value = words[i].text.substr(length + (append ? 2 : 1));
    std::vector<std::string> elements;
    const bool array = value == "(" && !words[i].quoted;
    ++i;
    if (array) {
      while (i < words.size() && words[i].text != ")") elements.push_back(words[i++].text);
      if (i < words.size()) ++i;
    } else {
      elements = {value};
    }
    Variable& variable = variables_[name];
    if (!append) {
      variable.words = std::move(elements);
    } else if (array || variable.words.empty()) {
      variable.words.insert(variable.words.end(), elements.begin(), elements.end());
    } else {
      variable.words[0] += elements[0];
    }
    if (std::find(order_.begin(), order_.end(), name) == order_.end()) order_.push_back(name);
    return name;
  }

  void command(const std::vector<ShellWord>& words, std::size_t i) {
    if (starts_with(words[i].text, "--")) {  // megatron.args
      found_ = true;
      for (; i < words.size(); ++i) words_.push_back(words[i].text);
      return;
    }
    const auto program = std::find_if(words.begin() + static_cast<std::ptrdiff_t>(i), words.end(),
                                      [](const ShellWord& w) { return ends_with(w.text, ".py"); });
    if (program != words.end()) {
      found_ = true;
      words_.clear();
      for (auto w = program + 1; w != words.end(); ++w) words_.push_back(w->text);
      launcher(words, i, static_cast<std::size_t>(program - words.begin()));
      return;
    }
    for (const char* harmless : {"set", "cd", "mkdir", "echo", "printf", ":"})
      if (words[i].text == harmless) return;
    list(words, i);
  }

  void list(const std::vector<ShellWord>& words, std::size_t i) {
    std::string text;
    for (; i < words.size(); ++i) text += (text.empty() ? "" : " ") + words[i].text;
    if (text.size() > 80) text = text.substr(0, 77) + "...";
    not_understood_.push_back("line " + std::to_string(words.front().line) + ": " + text);
  }

  void launcher(const std::vector<ShellWord>& words, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      std::string name = words[i].text, value;
      const std::size_t equals = name.find('=');
      if (equals != std::string::npos) {
        value = name.substr(equals + 1);
        name.resize(equals);
      } else if (i + 1 < to) {
        value = words[i + 1].text;
      }
      std::replace(name.begin(), name.end(), '_', '-');
      if (name == "--nnodes") nodes_ = as_count(value);
      if (name == "--nproc-per-node") per_node_ = as_count(value);
    }
  }

  // No command: every array or string that begins with a flag, in the order they were set.
  void use_blocks() {
    for (const std::string& name : order_) {
      std::vector<std::string> words;
      for (const std::string& element : variables_[name].words) {
        if (variables_[name].words.size() > 1) {
          words.push_back(element);
          continue;
        }
        ShellReader reader(element, file_,
                           [](const std::string&, std::vector<std::string>&) { return false; });
        while (!reader.done()) {
          Result<std::vector<ShellWord>> statement = reader.next_statement();
          if (!statement) break;
          for (const ShellWord& word : *statement) words.push_back(word.text);
        }
      }
      if (!words.empty() && starts_with(words[0], "--"))
        words_.insert(words_.end(), words.begin(), words.end());
    }
  }

  // Drops what only the running shell knows, and says so.
  std::vector<std::string> resolved() {
    std::vector<std::string> words;
    std::string flag;
    for (const std::string& word : words_) {
      if (starts_with(word, "--")) flag = word;
      if (word.find('$') == std::string::npos && word.find('`') == std::string::npos) {
        words.push_back(word);
        continue;
      }
      if (starts_with(word, "$")) {
        not_understood_.push_back(flag + " ... " + word + ": known only when the script runs");
        if (!words.empty() && words.back() == flag) words.pop_back();
      } else {
        not_understood_.push_back(word + ": known only when the script runs");
        if (!words.empty() && words.back() == flag && word != flag) words.pop_back();
      }
    }
    return words;
  }

  std::string file_;
  std::map<std::string, Variable> variables_;
  std::vector<std::string> order_, words_, not_understood_;
  std::optional<std::int64_t> nodes_, per_node_;
  bool found_ = false;
  int depth_ = 0;
};

std::string trim(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return std::string(text.substr(from, text.find_last_not_of(" \t\r") - from + 1));
}

// A YAML scalar without its quotes and trailing comment.
std::string yaml_scalar(std::string_view raw) {
  std::string text = trim(raw);
  if (!text.empty() && (text[0] == '\'' || text[0] == '"')) {
    const std::size_t end = text.find(text[0], 1);
    if (end != std::string::npos) return text.substr(1, end - 1);
  }
  const std::size_t comment = text.find(" #");
  if (comment != std::string::npos) text = trim(text.substr(0, comment));
  return !text.empty() && text[0] == '#' ? std::string() : text;
}

std::vector<std::string> yaml_list(std::string_view inside) {
  std::vector<std::string> items;
  while (!inside.empty()) {
    const std::size_t comma = inside.find(',');
    const std::string item = yaml_scalar(inside.substr(0, comma));
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

class ModelZooReader {
 public:
  ModelZooReader(std::string file, const Environment& variables)
      : file_(std::move(file)), variables_(variables) {}

  Result<void> line(std::string_view raw, int number) {
    const std::size_t indent = raw.find_first_not_of(' ');
    const std::string text = trim(raw);
    if (text.empty() || text[0] == '#' || text == "---") return {};
    const std::string where = file_ + ":" + std::to_string(number);
    if (starts_with(text, "- ")) {
      if (script_.arguments.items.empty() || section_ != "MODEL_ARGS")
        return input_error("a list item without a flag", where);
      script_.arguments.items.back().values.push_back(
          substitute(yaml_scalar(text.substr(2)), variables_));
      return {};
    }
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) return input_error("not a 'key: value' line", where);
    const std::string key = yaml_scalar(text.substr(0, colon));
    const std::string raw_value = trim(text.substr(colon + 1));
    if (indent == 0) {
      section_ = key;
      if (!yaml_scalar(raw_value).empty()) script_.not_understood.push_back(text);
      return {};
    }
    entry(key, raw_value, number);
    return {};
  }

  LaunchScript take() {
    std::vector<Argument> kept;
    for (Argument& argument : script_.arguments.items) {
      const bool unknown = std::any_of(argument.values.begin(), argument.values.end(),
                                       [](const std::string& v) { return v.find('$') != v.npos; });
      if (unknown)
        script_.not_understood.push_back(argument.flag + " " + argument.values[0] +
                                         ": the variable has no value here");
      else
        kept.push_back(std::move(argument));
    }
    script_.arguments.items = std::move(kept);
    return std::move(script_);
  }

 private:
  void entry(const std::string& key, const std::string& raw_value, int number) {
    const std::string value = substitute(yaml_scalar(raw_value), variables_);
    if (section_ == "ENV_VARS") {
      script_.environment[key] = value;
      variables_.emplace(key, value);
    } else if (section_ != "MODEL_ARGS") {
      script_.not_understood.push_back(section_ + "." + key);
    } else if (value == "false" || value == "False" || value == "null") {
      return;
    } else if (value == "true" || value == "True" || value.empty()) {
      script_.arguments.items.push_back({key, {}, number});
    } else if (raw_value[0] == '[' && value.back() == ']') {
      script_.arguments.items.push_back(
          {key, yaml_list(std::string_view(value).substr(1, value.size() - 2)), number});
    } else {
      script_.arguments.items.push_back({key, {value}, number});
    }
  }

  std::string file_;
  Environment variables_;
  std::string section_;
  LaunchScript script_;
};

}  // namespace

Result<LaunchScript> parse_shell(std::string_view text, const std::string& file,
                                 const Environment& variables) {
  Interpreter interpreter(file, variables);
  ShellReader reader(text, file, [&](const std::string& name, std::vector<std::string>& words) {
    return interpreter.lookup(name, words);
  });
  while (!reader.done()) {
    TRIFOLD_ASSIGN(words, reader.next_statement());
    if (!words.empty()) interpreter.statement(words);
  }
  return interpreter.finish();
}

Result<LaunchScript> parse_model_zoo_yaml(std::string_view text, const std::string& file,
                                          const Environment& variables) {
  ModelZooReader reader(file, variables);
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    TRIFOLD_TRY(reader.line(text.substr(0, end), number));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return reader.take();
}

Result<LaunchScript> read_launch_script(const std::string& path, const Environment& variables) {
  TRIFOLD_ASSIGN(text, read_text(path));
  Result<LaunchScript> script = ends_with(path, ".yaml") || ends_with(path, ".yml")
                                    ? parse_model_zoo_yaml(text, path, variables)
                                    : parse_shell(text, path, variables);
  if (script && script->arguments.items.empty())
    return input_error("no Megatron arguments here", path,
                       "expected megatron.args, a launch script around pretrain_gpt.py, or a YAML "
                       "with MODEL_ARGS");
  return script;
}

}  // namespace trifold::launch
