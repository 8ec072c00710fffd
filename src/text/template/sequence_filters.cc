// Filters of lists and mappings.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/filter_table.h"
#include "text/template/methods.h"
#include "text/template/number.h"
#include "text/template/text_case.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

// The path of an attribute such as "function.parameters.0", looked up part by part.
class Path {
 public:
  Path() = default;
  Path(RenderState& s, const Value& attribute) {
    if (attribute.is_missing() || attribute.is_none()) return;
    if (!attribute.is_string()) {
      parts_.push_back(attribute);
      return;
    }
    const Text text = attribute.as_text();
    size_t begin = 0;
    for (size_t dot = 0; dot != std::string_view::npos && s.take_items(1); begin = dot + 1) {
      dot = text.view().find('.', begin);
      const Text part = text.part(begin, std::min(dot, text.size()));
      const bool digits = !part.empty() && part.view().find_first_not_of("0123456789") == std::string_view::npos;
      const auto index = digits ? parse_integer(part.view(), 10) : std::nullopt;
      parts_.push_back(index ? *index : Value(part));
    }
  }
  Value of(RenderState& s, Value v, const Value& fallback = {}) const {
    for (const Value& part : parts_) {
      v = item(s, v, part);
      if (v.is_undefined() && !fallback.is_missing() && !fallback.is_none()) v = fallback;
    }
    return v;
  }

 private:
  std::vector<Value> parts_;
};

Value without_case(RenderState& s, const Value& v, bool case_sensitive) {
  return v.is_string() && !case_sensitive ? Value(lower(s, v.as_text())) : v;
}

// Stable, by keys of equal length for all; the first place where two differ decides. `as_lists`: Python compares lists of keys, where equal
// ones need no order; otherwise single keys, which do.
using Keyed = std::pair<std::vector<Value>, Value>;
std::vector<Value> sorted(RenderState& s, std::vector<Keyed> keyed, bool reverse, bool as_lists) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    if (!s.take_items(4)) return false;
    const auto& [x, y] = reverse ? std::tie(b.first, a.first) : std::tie(a.first, b.first);
    for (size_t i = 0; i < x.size(); ++i)
      if (!as_lists || !compare(s, "==", x[i], y[i])) return compare(s, "<", x[i], y[i]);
    return false;
  });
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (Keyed& k : keyed) out.push_back(std::move(k.second));
  return out;
}

Value filter_length(RenderState& s, const Value& v, const Bound&) {
  switch (v.type()) {
    case Type::kUndefined: return Value::integer(0);
    case Type::kString: s.meter().take_steps(v.weight()); return Value::integer(static_cast<int64_t>(count_chars(v.view())));
    case Type::kList: return Value::integer(static_cast<int64_t>(v.as_list().items.size()));
    case Type::kDict: return Value::integer(static_cast<int64_t>(v.as_dict().entries.size()));
    default: return s.fail(fmt::format("object of type '{}' has no len()", v.is_none() ? "NoneType" : type_name(v)));
  }
}

Value filter_first(RenderState& s, const Value& v, const Bound&) {
  if (v.is(Type::kIterator)) {
    Iterator& it = v.as_iterator();
    return it.next < it.items.size() ? it.items[it.next++] : Value::undefined("No first item, sequence was empty.");
  }
  if (v.is(Type::kList) && !v.as_list().items.empty()) return v.as_list().items.front();
  if (v.is_string() && !v.view().empty()) return item(s, v, Value::integer(0));
  const auto items = s.items_of(v);
  return items && !items->empty() ? items->front() : Value::undefined("No first item, sequence was empty.");
}

Value filter_last(RenderState& s, const Value& v, const Bound&) {
  if (v.is(Type::kIterator)) return s.fail("'generator' object is not reversible");
  if (v.is_string() && !v.view().empty()) return item(s, v, Value::integer(-1));
  const auto items = s.items_of(v);
  return items && !items->empty() ? items->back() : Value::undefined("No last item, sequence was empty.");
}

Value filter_list(RenderState& s, const Value& v, const Bound&) {
  auto items = s.items_of(v);
  return items ? s.list(std::move(*items)) : Value::undefined("");
}

Value filter_reverse(RenderState& s, const Value& v, const Bound&) {
  if (v.is_string()) return slice(s, v, {}, {}, Value::integer(-1));
  auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  std::reverse(items->begin(), items->end());
  return v.is(Type::kIterator) ? s.list(std::move(*items)) : s.iterator(std::move(*items));
}

Value filter_join(RenderState& s, const Value& v, const Bound& b) {
  auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  if (!b[1].is_missing() && !b[1].is_none()) {
    const Path path(s, b[1]);
    for (Value& i : *items) i = path.of(s, i);
  }
  return joined(s, b[0].is_missing() ? Text() : to_text(s, b[0]), *items, false);
}

Value filter_sort(RenderState& s, const Value& v, const Bound& b) {
  auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  const bool case_sensitive = truth(b[1]);
  std::vector<Path> paths;
  if (b[2].is_string()) {
    const Text text = b[2].as_text();
    size_t begin = 0;
    for (size_t comma = 0; comma != std::string_view::npos && s.take_items(1); begin = comma + 1) {
      comma = text.view().find(',', begin);
      paths.emplace_back(s, text.part(begin, std::min(comma, text.size())));
    }
  } else {
    paths.emplace_back(s, b[2]);
  }
  if (!s.room_for(items->size() * (3 + paths.size()))) return s.fail("");
  std::vector<Keyed> keyed;
  for (Value& i : *items) {
    std::vector<Value> keys;
    for (const Path& path : paths) keys.push_back(without_case(s, path.of(s, i), case_sensitive));
    keyed.emplace_back(std::move(keys), std::move(i));
  }
  return s.list(sorted(s, std::move(keyed), truth(b[0]), true));
}

Value filter_dictsort(RenderState& s, const Value& v, const Bound& b) {
  if (!v.is(Type::kDict)) return s.fail(v.is_undefined() ? v.why() : fmt::format("'{}' object has no attribute 'items'", type_name(v)));
  const std::string by = b[1].is_missing() ? "key" : b[1].is_string() ? std::string(b[1].view()) : "";
  if (by != "key" && by != "value") return s.fail("You can only sort by either \"key\" or \"value\"");
  if (!s.room_for(v.as_dict().entries.size() * 6)) return s.fail("");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : v.as_dict().entries)
    keyed.push_back({{without_case(s, by == "key" ? key : value, truth(b[0]))}, s.list({key, value}, List::Flavour::kTuple)});
  return s.list(sorted(s, std::move(keyed), truth(b[2]), false));
}

Value filter_unique(RenderState& s, const Value& v, const Bound& b) {
  auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  const Path path(s, b[1]);
  auto seen = s.new_dict();
  std::vector<Value> out;
  for (Value& i : *items) {
    if (!s.take_items(2)) break;
    const Value key = without_case(s, path.of(s, i), truth(b[0]));
    if (!hashable(key)) return s.fail(fmt::format("unhashable type: '{}'", type_name(key)));
    if (seen->find(key) != nullptr) continue;
    seen->set(key, Value::none());
    out.push_back(std::move(i));
  }
  return s.iterator(std::move(out));
}

Value extreme(RenderState& s, const Value& v, const Bound& b, std::string_view op) {
  const auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  const Path path(s, b[1]);
  Value best, best_key;
  for (const Value& i : *items) {
    const Value key = without_case(s, path.of(s, i), truth(b[0]));
    if (s.failed()) break;
    if (!best.is_missing() && !compare(s, op, key, best_key)) continue;
    best = i;
    best_key = key;
  }
  return best.is_missing() ? Value::undefined("No aggregated item, sequence was empty.") : best;
}
Value filter_min(RenderState& s, const Value& v, const Bound& b) { return extreme(s, v, b, "<"); }
Value filter_max(RenderState& s, const Value& v, const Bound& b) { return extreme(s, v, b, ">"); }

Value filter_sum(RenderState& s, const Value& v, const Bound& b) {
  const auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  const Path path(s, b[0]);
  Value total = b[1].is_missing() ? Value::integer(0) : b[1];
  if (total.is_string()) return s.fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& i : *items) {
    if (!s.take_items(1)) break;
    total = arithmetic(s, "+", total, path.of(s, i));
  }
  return total;
}

Value filter_map(RenderState& s, const Value& v, const Arguments& a) {
  if (!truth(v)) return s.iterator({});  // none as well
  const auto items = s.items_of(v);
  if (!items || !s.room_for(items->size())) return Value::undefined("");
  std::vector<Value> out;
  out.reserve(items->size());
  if (a.positional.empty()) {
    constexpr std::array<std::string_view, 2> kNames = {"attribute", "default"};
    const auto b = bind_arguments(s, "map", a, kNames, 1);
    const Path path(s, b[0]);
    for (const Value& i : *items) {
      if (!s.take_items(2)) break;
      out.push_back(path.of(s, i, b[1]));
    }
    return s.iterator(std::move(out));
  }
  if (!a.positional[0].is_string()) return s.fail("map() needs the name of a filter");
  const Arguments rest{{a.positional.begin() + 1, a.positional.end()}, a.named};
  for (const Value& i : *items) {
    if (!s.take_items(2)) break;
    out.push_back(apply_filter(s, a.positional[0].view(), i, rest));
  }
  return s.iterator(std::move(out));
}

Value chosen(RenderState& s, const Value& v, const Arguments& a, bool by_attribute, bool wanted) {
  if (!truth(v)) return s.iterator({});  // none as well
  const auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  const size_t test = by_attribute ? 1 : 0;
  if (a.positional.size() < test) return s.fail("the name of an attribute is missing");
  const Path path = by_attribute ? Path(s, a.positional[0]) : Path();
  Arguments rest;
  std::string_view name;
  if (a.positional.size() > test) {
    if (!a.positional[test].is_string() || !is_test(a.positional[test].view())) return s.fail("the name of a test is needed");
    name = a.positional[test].view();
    rest = {{a.positional.begin() + static_cast<ptrdiff_t>(test) + 1, a.positional.end()}, a.named};
  }
  std::vector<Value> out;
  for (const Value& i : *items) {
    if (!s.take_items(2)) break;
    const Value subject = path.of(s, i);
    if ((name.empty() ? truth(subject) : apply_test(s, name, subject, rest)) == wanted) out.push_back(i);
  }
  return s.iterator(std::move(out));
}
Value filter_select(RenderState& s, const Value& v, const Arguments& a) { return chosen(s, v, a, false, true); }
Value filter_reject(RenderState& s, const Value& v, const Arguments& a) { return chosen(s, v, a, false, false); }
Value filter_selectattr(RenderState& s, const Value& v, const Arguments& a) { return chosen(s, v, a, true, true); }
Value filter_rejectattr(RenderState& s, const Value& v, const Arguments& a) { return chosen(s, v, a, true, false); }

Value filter_groupby(RenderState& s, const Value& v, const Bound& b) {
  auto items = s.items_of(v);
  if (!items || !s.room_for(items->size() * 6)) return Value::undefined("");
  const Path path(s, b[0]);
  const bool case_sensitive = truth(b[2]);
  std::vector<Keyed> keyed;
  for (Value& i : *items) {
    Value key = without_case(s, path.of(s, i, b[1]), case_sensitive);
    keyed.push_back({{std::move(key)}, std::move(i)});
  }
  std::vector<Value> groups;
  std::vector<Value> group;
  Value group_key;
  const auto close = [&] {
    if (group.empty()) return;
    const Value shown = path.of(s, group.front(), b[1]);
    groups.push_back(s.list({shown, s.list(std::move(group))}, List::Flavour::kGroup));
    group.clear();
  };
  for (Value& i : sorted(s, std::move(keyed), false, false)) {
    if (!s.take_items(2)) break;
    Value key = without_case(s, path.of(s, i, b[1]), case_sensitive);
    if (!group.empty() && !compare(s, "==", key, group_key)) close();
    group_key = std::move(key);
    group.push_back(std::move(i));
  }
  close();
  return s.list(std::move(groups));
}

Value filter_batch(RenderState& s, const Value& v, const Bound& b) {
  const auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  if (!b[0].is(Type::kInt) || b[0].as_int() < 1) return s.fail("batch() needs a positive whole number");
  const auto size = static_cast<size_t>(b[0].as_int());
  std::vector<Value> out;
  for (size_t i = 0; i < items->size() && s.room_for(2); i += std::min(size, items->size() - i)) {
    const size_t n = std::min(size, items->size() - i);
    std::vector<Value> row(items->begin() + static_cast<ptrdiff_t>(i), items->begin() + static_cast<ptrdiff_t>(i + n));
    if (!b[1].is_missing() && !b[1].is_none()) {
      if (!s.room_for(size - n)) break;
      row.resize(size, b[1]);
    }
    out.push_back(s.list(std::move(row)));
  }
  return s.iterator(std::move(out));
}

Value filter_slice(RenderState& s, const Value& v, const Bound& b) {
  const auto items = s.items_of(v);
  if (!items) return Value::undefined("");
  if (!b[0].is(Type::kInt) || b[0].as_int() < 1) return s.fail("slice() needs a positive whole number");
  const auto count = static_cast<size_t>(b[0].as_int());
  if (!s.room_for(count)) return s.fail("");
  const size_t each = items->size() / count, longer = items->size() % count;
  std::vector<Value> out;
  size_t at = 0;
  for (size_t i = 0; i < count && s.room_for(2); ++i) {
    const size_t n = each + (i < longer ? 1 : 0);
    std::vector<Value> row(items->begin() + static_cast<ptrdiff_t>(at), items->begin() + static_cast<ptrdiff_t>(at + n));
    if (i >= longer && !b[1].is_missing() && !b[1].is_none()) row.push_back(b[1]);
    at += n;
    out.push_back(s.list(std::move(row)));
  }
  return s.iterator(std::move(out));
}

Value filter_items(RenderState& s, const Value& v, const Bound&) {
  if (v.is_undefined()) return s.iterator({});
  if (!v.is(Type::kDict)) return s.fail("Can only get item pairs from a mapping.");
  const Value view = call_method(s, v, "items", {});
  return s.failed() ? view : s.iterator(view.as_list().items);
}

constexpr FilterEntry kSequenceFilters[] = {
    {"length", filter_length, {}, 0},
    {"count", filter_length, {}, 0},
    {"first", filter_first, {}, 0},
    {"last", filter_last, {}, 0},
    {"list", filter_list, {}, 0},
    {"reverse", filter_reverse, {}, 0},
    {"join", filter_join, {"d", "attribute"}, 0},
    {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}, 0},
    {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}, 0},
    {"unique", filter_unique, {"case_sensitive", "attribute"}, 0},
    {"min", filter_min, {"case_sensitive", "attribute"}, 0},
    {"max", filter_max, {"case_sensitive", "attribute"}, 0},
    {"sum", filter_sum, {"attribute", "start"}, 0},
    {"map", nullptr, {}, 0, filter_map},
    {"select", nullptr, {}, 0, filter_select},
    {"reject", nullptr, {}, 0, filter_reject},
    {"selectattr", nullptr, {}, 0, filter_selectattr},
    {"rejectattr", nullptr, {}, 0, filter_rejectattr},
    {"groupby", filter_groupby, {"attribute", "default", "case_sensitive"}, 1},
    {"batch", filter_batch, {"linecount", "fill_with"}, 1},
    {"slice", filter_slice, {"slices", "fill_with"}, 1},
    {"items", filter_items, {}, 0},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kSequenceFilters; }

}  // namespace baton::text::jinja
