// SPDX-License-Identifier: Apache-2.0
#include "layout/layout_string.h"

#include <fmt/format.h>

#include <algorithm>

#include "layout/pipeline.h"

namespace trifold::layout {

namespace {

constexpr std::size_t kLongestLayout = 1 << 16;  // stages and layers of any real pipeline

LayoutSyntax wrong(std::size_t at, const char* message) { return {false, at, message}; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads "*n" at `at`, skipping commas. Leaves `at` behind it; count stays 1 where there is none.
LayoutSyntax read_repeat(std::string_view text, std::size_t& at, std::size_t& count) {
  std::size_t i = at;
  while (i < text.size() && text[i] == ',') ++i;
  if (i >= text.size() || text[i] != '*') return {};
  ++i;
  while (i < text.size() && text[i] == ',') ++i;
  if (i >= text.size() || !is_digit(text[i])) return wrong(i, "a number must follow '*'");
  count = 0;
  for (; i < text.size() && (is_digit(text[i]) || text[i] == ','); ++i) {
    if (text[i] == ',') continue;
    count = count * 10 + static_cast<std::size_t>(text[i] - '0');
    if (count > kLongestLayout) return wrong(i, "the repeat is absurdly large");
  }
  at = i;
  return {};
}

// One character with its repeat.
LayoutSyntax expand_char(std::string_view text, std::size_t& at, std::string& out) {
  const char c = text[at];
  if (c != 'E' && c != 't' && c != 'm' && c != 'L' && c != '|')
    return wrong(at, "Invalid layer character");
  ++at;
  std::size_t count = 1;
  if (LayoutSyntax s = read_repeat(text, at, count); !s.ok) return s;
  if (out.size() + count > kLongestLayout) return wrong(at, "the layout is absurdly long");
  out.append(count, c);
  return {};
}

LayoutSyntax expand_group(std::string_view text, std::size_t& at, std::string& out) {
  const std::size_t open = at, begin = out.size();
  for (++at; at < text.size() && text[at] != ')';) {
    if (text[at] == '(') return wrong(at, "parentheses do not nest");
    if (text[at] == ',') {
      ++at;
    } else if (LayoutSyntax s = expand_char(text, at, out); !s.ok) {
      return s;
    }
  }
  if (at >= text.size()) return wrong(open, "'(' is never closed");
  if (at == open + 1) return wrong(open, "'()' is empty");
  ++at;
  const std::size_t star = at;
  std::size_t count = 1;
  if (LayoutSyntax s = read_repeat(text, at, count); !s.ok) return s;
  if (at == star) return wrong(star, "'(...)' must be repeated: '(...)*n'");
  const std::size_t size = out.size() - begin;
  if (begin + size * count > kLongestLayout) return wrong(open, "the layout is absurdly long");
  if (count == 0) out.resize(begin);
  out.reserve(begin + size * count);
  for (std::size_t i = 1; i < count; ++i) out.append(out, begin, size);
  return {};
}

// "t*4" where that is no longer than "tttt".
std::string fold_characters(const std::string& stage) {
  std::string text;
  for (std::size_t i = 0; i < stage.size();) {
    std::size_t run = 1;
    while (i + run < stage.size() && stage[i + run] == stage[i]) ++run;
    const std::string folded = fmt::format("{}*{}", stage[i], run);
    text += folded.size() <= run ? folded : stage.substr(i, run);
    i += run;
  }
  return text;
}

char printable(char c) { return c >= ' ' && c <= '~' ? c : '?'; }

}  // namespace

LayoutSyntax expand_layout(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ',') {
      ++at;
      continue;
    }
    LayoutSyntax s = text[at] == '(' ? expand_group(text, at, out) : expand_char(text, at, out);
    if (!s.ok) return s;
  }
  return {};
}

Result<std::vector<std::string>> parse_pipeline_layout(const std::string& text) {
  std::string flat;
  if (LayoutSyntax s = expand_layout(text, flat); !s.ok) {
    std::string found = s.at < text.size() ? fmt::format(" at '{}'", printable(text[s.at])) : "";
    return input_error(
        fmt::format("{}{} (character {} of the pipeline layout)", s.message, found, s.at + 1), {},
        "E, t, m, L and |, with x*n and (...)*n, for example 'Et|(tt|)*30mL'");
  }
  std::vector<std::string> stages(1);
  for (char c : flat) {
    if (c == '|')
      stages.emplace_back();
    else
      stages.back() += c;
  }
  return stages;
}

std::string print_pipeline_layout(const std::vector<std::string>& stages) {
  std::string text;
  for (std::size_t i = 0; i < stages.size();) {
    const std::string stage = fold_characters(stages[i]);
    if (i + 1 == stages.size()) {
      text += stage;
      break;
    }
    // Only stages that another one follows end in '|', so a run stops before the last stage.
    std::size_t run = 1;
    while (i + run + 1 < stages.size() && stages[i + run] == stages[i]) ++run;
    const std::string folded = fmt::format("({}|)*{}", stage, run);
    if (run > 1 && folded.size() <= run * (stage.size() + 1)) {
      text += folded;
    } else {
      for (std::size_t j = 0; j < run; ++j) text += stage + "|";
    }
    i += run;
  }
  return text;
}

std::string print_pipeline_layout(const Pipeline& pipeline) {
  std::vector<std::string> stages(pipeline.chunks.size());
  for (int k = 0; k < pipeline.vpp; ++k) {
    for (int r = 0; r < pipeline.pp; ++r) {
      const Chunk& chunk = pipeline.at(r, k);
      const bool back = pipeline.placement == Placement::vee && k % 2 == 1;
      std::string& stage =
          stages[static_cast<std::size_t>(k * pipeline.pp + (back ? pipeline.pp - 1 - r : r))];
      if (chunk.embedding) stage += 'E';
      stage.append(static_cast<std::size_t>(chunk.layers), 't');
      stage.append(static_cast<std::size_t>(chunk.mtp), 'm');
      if (chunk.loss) stage += 'L';
    }
  }
  return print_pipeline_layout(stages);
}

}  // namespace trifold::layout
