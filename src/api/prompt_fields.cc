#include "api/prompt_fields.h"

#include <algorithm>

namespace baton::api {
namespace {

namespace json = boost::json;

void read_text(FieldReader in, std::vector<Prompt>& out) {
  const auto text = in.text(in.limits().body_bytes);
  if (!text) return;
  if (text->empty()) return in.wrong("is empty");
  out.push_back({.text = std::string(*text)});
}

void read_ids(FieldReader in, std::vector<Prompt>& out) {
  const json::array* ids = in.array(in.limits().values);
  if (ids == nullptr) return;
  if (ids->empty()) return in.wrong("is empty");
  Prompt prompt;
  prompt.ids.reserve(ids->size());
  const int64_t most = in.limits().vocabulary > 0 ? in.limits().vocabulary - 1 : INT32_MAX;
  for (size_t i = 0; i < ids->size(); ++i) {
    const json::value& id = (*ids)[i];
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > most) {  // readers of single values take time for their path
      const auto whole = in.item(i, id).whole(0, most);
      if (!whole) return;
      prompt.ids.push_back(static_cast<int32_t>(*whole));
      continue;
    }
    prompt.ids.push_back(static_cast<int32_t>(id.get_int64()));
  }
  out.push_back(std::move(prompt));
}

}  // namespace

void read_prompts(FieldReader& in, std::vector<Prompt>& out, bool* batch) {
  if (!out.empty()) return in.wrong("is a second prompt beside another field's; give one of them");
  if (in.value().is_string()) return read_text(in, out);
  if (!in.value().is_array())
    return in.wrong(fmt::format("is {}; it must be a string, a list of token ids, or a list of such", shown(in.value())));
  const json::array& items = in.value().get_array();
  if (items.empty()) return in.wrong("is an empty list");
  if (items[0].is_number()) return read_ids(in, out);
  if (in.array(in.limits().prompts) == nullptr) return;
  if (batch != nullptr) *batch = true;
  for (size_t i = 0; i < items.size() && !in.failed(); ++i) {
    FieldReader item = in.item(i, items[i]);
    if (items[i].is_string())
      read_text(item, out);
    else if (items[i].is_array())
      read_ids(item, out);
    else
      item.wrong(fmt::format("is {}; it must be a string or a list of token ids", shown(items[i])));
  }
}

void check_choices(Reading& reading, size_t prompts, int32_t choices_each, const ChoiceFields& fields) {
  const int32_t most = std::max(reading.limits.all_choices, reading.limits.choices);
  if (reading.error || static_cast<int64_t>(prompts) * choices_each <= most) return;
  if (choices_each == 1)
    reading.error = ApiError::field(std::string(fields.prompts), fmt::format("has {} prompts; {} are the most", prompts, most));
  else
    reading.error = ApiError::field(std::string(fields.choices),
                                    fmt::format("is {} for {} prompts; {} choices are the most", choices_each, prompts, most));
}

}  // namespace baton::api
