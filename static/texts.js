// The texts of scripts in the language of the page. English stands in the scripts, as plain texts that tools/messages
// finds; the page brings the other languages along (templates/frame.html). Values stand in braces.

const known = JSON.parse(document.getElementById("texts")?.textContent ?? "{}");
const rules = new Intl.PluralRules(document.documentElement.lang || "en");

// Numbers as the language of the page writes them. Made when it is needed: most pages show no number by a script.
let numbers;
export const number = {
  format: (value) => (numbers ??= new Intl.NumberFormat(document.documentElement.lang || "en")).format(value),
};

// say("in {length}", { length: "5 min" })
export function say(text, values = {}) {
  return fill(known[text] ?? text, values);
}

// sayMany(3, "{number} line", "{number} lines")
export function sayMany(number, one, many, values = {}) {
  const forms = known[one] ?? [one, many];
  const form = rules.select(number) === "one" ? forms[0] : forms[forms.length - 1];
  return fill(form, { number, ...values });
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
