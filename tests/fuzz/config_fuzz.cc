// SPDX-License-Identifier: Apache-2.0

// A Hugging Face config.json: refused with a message, or a Model that is consistent and survives
// being written and read again.

#include "fuzz.h"
#include "model/catalogue.h"
#include "model/size.h"

using namespace trifold;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<Json> json = parse_json(fuzz::text_of(data, size), "fuzz.json");
  if (!json) return TRIFOLD_CHECK(!json.error().message.empty()), 0;
  const Result<model::Model> first = model::import_hf_config(*json, "fuzz.json");
  if (!first) return TRIFOLD_CHECK(!first.error().message.empty()), 0;
  TRIFOLD_CHECK(model::validate(*first, "fuzz.json").has_value());
  const model::Parameters parameters = model::count_parameters(*first);
  TRIFOLD_CHECK(parameters.total() > 0 && parameters.active() <= parameters.total());
  TRIFOLD_CHECK(model::train_flops_per_token(*first, 4096) > 0);
  const Result<model::Model> again =
      model::import_hf_config(model::to_hf_config(*first), "again.json");
  TRIFOLD_CHECK(again.has_value());
  TRIFOLD_CHECK(model::count_parameters(*again).total() == parameters.total());
  return 0;
}
