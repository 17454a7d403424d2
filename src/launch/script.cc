// SPDX-License-Identifier: Apache-2.0
#include "launch/script.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/json.h"
#include "launch/flags.h"
#include "launch/shell_words.h"

namespace trifold::launch {
namespace {

struct Variable {
  std::vector<ShellWord> words;
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
    for (const auto& [name, value] : variables) variables_[name].words = {{value, false, 0}};
  }

  bool lookup(const std::string& name, std::vector<ShellWord>& words) const {
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
    std::vector<int> lines;
    const std::vector<std::string> words = resolved(lines);
    TRIFOLD_ASSIGN(arguments, parse_arguments(words, file_, lines));
    script.arguments = std::move(arguments);
    for (const auto& [name, variable] : variables_)
      if (variable.exported && !variable.words.empty()) {
        const ShellWord& value = variable.words[0];
        if (value.text.find('$') == std::string::npos)
          script.environment[name] = value.text;
        else
          not_understood_.push_back(at_line(value.line) + "export " + name + "=" + value.text +
                                    ": its value is only known when the script runs");
      }
    if (nodes_ && per_node_) script.gpus = *nodes_ * *per_node_;
    script.not_understood = std::move(not_understood_);
    script.unresolved = std::move(unresolved_);
    return script;
  }

 private:
  // Reads "NAME=value" or "NAME=( ... )" at words[i] and steps over it.
  std::string assign(const std::vector<ShellWord>& words, std::size_t& i) {
    const std::size_t length = assigned_name(words[i]);
    const std::string name = words[i].text.substr(0, length);
    const bool append = words[i].text[length] == '+';
    const std::string value = words[i].text.substr(length + (append ? 2 : 1));
    std::vector<ShellWord> elements;
    const bool array = value == "(" && !words[i].quoted;
    const int line = words[i++].line;
    if (array) {
      while (i < words.size() && words[i].text != ")") elements.push_back(words[i++]);
      if (i < words.size()) ++i;
    } else {
      elements = {{value, false, line}};
    }
    Variable& variable = variables_[name];
    if (!append) {
      variable.words = std::move(elements);
    } else if (array || variable.words.empty()) {
      variable.words.insert(variable.words.end(), elements.begin(), elements.end());
    } else {
      variable.words[0].text += elements[0].text;
    }
    if (std::find(order_.begin(), order_.end(), name) == order_.end()) order_.push_back(name);
    return name;
  }

  void command(const std::vector<ShellWord>& words, std::size_t i) {
    if (starts_with(words[i].text, "--")) {  // megatron.args
      found_ = true;
      words_.insert(words_.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      return;
    }
    const auto program = std::find_if(words.begin() + static_cast<std::ptrdiff_t>(i), words.end(),
                                      [](const ShellWord& w) { return ends_with(w.text, ".py"); });
    if (program != words.end()) {
      found_ = true;
      words_.assign(program + 1, words.end());
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
    not_understood_.push_back(at_line(words.front().line) + text);
  }

  static std::string at_line(int line) {
    return line > 0 ? "line " + std::to_string(line) + ": " : std::string();
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
      std::vector<ShellWord> words = variables_[name].words;
      if (words.size() == 1) words = cut(words[0]);
      if (!words.empty() && starts_with(words[0].text, "--"))
        words_.insert(words_.end(), words.begin(), words.end());
    }
  }

  // A string of several words, as a shell would cut it.
  std::vector<ShellWord> cut(const ShellWord& whole) const {
    std::vector<ShellWord> words;
    ShellReader reader(whole.text, file_,
                       [](const std::string&, std::vector<ShellWord>&) { return false; });
    while (!reader.done()) {
      Result<std::vector<ShellWord>> statement = reader.next_statement();
      if (!statement) break;
      for (ShellWord& word : *statement) words.push_back({word.text, word.quoted, whole.line});
    }
    return words;
  }

  // Sets aside what only the running shell knows.
  std::vector<std::string> resolved(std::vector<int>& lines) {
    std::vector<std::string> words;
    std::string flag;
    int flag_line = 0;
    for (const ShellWord& word : words_) {
      if (starts_with(word.text, "--")) flag = word.text, flag_line = word.line;
      if (word.text.find('$') == std::string::npos && word.text.find('`') == std::string::npos) {
        words.push_back(word.text);
        lines.push_back(word.line);
        continue;
      }
      const Flag* known = find_flag(flag);
      const bool its_value = known == nullptr || known->arity != 0;
      if (its_value && !words.empty() && words.back() == flag) {
        unresolved_.push_back({flag, {word.text}, flag_line});
        words.pop_back();
        lines.pop_back();
      } else {
        not_understood_.push_back(at_line(word.line) + word.text +
                                  ": known only when the script runs");
      }
    }
    return words;
  }

  std::string file_;
  std::map<std::string, Variable> variables_;
  std::vector<std::string> order_, not_understood_;
  std::vector<Argument> unresolved_;
  std::vector<ShellWord> words_;
  std::optional<std::int64_t> nodes_, per_node_;
  bool found_ = false;
  int depth_ = 0;
};

}  // namespace

Result<LaunchScript> parse_shell(std::string_view text, const std::string& file,
                                 const Environment& variables) {
  Interpreter interpreter(file, variables);
  ShellReader reader(text, file, [&](const std::string& name, std::vector<ShellWord>& words) {
    return interpreter.lookup(name, words);
  });
  while (!reader.done()) {
    TRIFOLD_ASSIGN(words, reader.next_statement());
    if (!words.empty()) interpreter.statement(words);
  }
  return interpreter.finish();
}

Format guess_format(std::string_view text, const std::string& path) {
  if (ends_with(path, ".yaml") || ends_with(path, ".yml")) return Format::yaml;
  if (ends_with(path, ".sh") || ends_with(path, ".args") || ends_with(path, ".sbatch"))
    return Format::shell;
  return starts_with(text, "MODEL_ARGS:") || text.find("\nMODEL_ARGS:") != std::string_view::npos
             ? Format::yaml
             : Format::shell;
}

Result<LaunchScript> parse_launch_script(std::string_view text, const std::string& file,
                                         Format format, const Environment& variables) {
  Result<LaunchScript> script = format == Format::yaml ? parse_model_zoo_yaml(text, file, variables)
                                                       : parse_shell(text, file, variables);
  if (script && script->arguments.items.empty())
    return input_error("no Megatron arguments here", file,
                       "expected megatron.args, a launch script around pretrain_gpt.py, or a YAML "
                       "with MODEL_ARGS");
  return script;
}

Result<LaunchScript> read_launch_script(const std::string& path, const Environment& variables) {
  TRIFOLD_ASSIGN(text, read_text(path));
  return parse_launch_script(text, path, guess_format(text, path), variables);
}

}  // namespace trifold::launch
