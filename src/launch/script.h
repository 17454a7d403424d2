// SPDX-License-Identifier: Apache-2.0
#pragma once

// What people hand over: megatron.args, a launch script (torchrun, srun or python around
// pretrain_gpt.py, with arrays and variables), or a YAML of the Megatron MoE ModelZoo (MODEL_ARGS,
// ENV_VARS). Only assignments, arrays, exports and one command are understood; the rest of a
// script is listed, never executed.

#include <string>

#include "launch/arguments.h"

namespace trifold::launch {

// `variables` gives a value to names that the text uses and does not set.
Result<LaunchScript> parse_shell(std::string_view text, const std::string& file,
                                 const Environment& variables = {});
Result<LaunchScript> parse_model_zoo_yaml(std::string_view text, const std::string& file,
                                          const Environment& variables = {});

enum class Format : std::uint8_t { shell, yaml };
// By the name's ending, else by a line that begins with MODEL_ARGS:.
Format guess_format(std::string_view text, const std::string& path);
// A text without any argument is an error.
Result<LaunchScript> parse_launch_script(std::string_view text, const std::string& file,
                                         Format format, const Environment& variables = {});
Result<LaunchScript> read_launch_script(const std::string& path, const Environment& variables = {});

}  // namespace trifold::launch
