// The words of a timeline: numbers, ticks, and names from traces that nobody vouches for.

const ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

// What is no printable character is shown as its escape, as everywhere else in the page.
function visible(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => {
    const code = character.codePointAt(0);
    const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return ESCAPES[character] ?? `\\${letter}${code.toString(16).padStart(digits, "0")}`;
  });
}

const formats = new Map();
function fixed(value, digits) {
  if (!formats.has(digits)) {
    const places = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    formats.set(digits, new Intl.NumberFormat("en", places));
  }
  return formats.get(digits).format(value);
}

// The same without idle zeros at the end.
function short(value, digits) {
  const text = fixed(value, digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// Round numbers between two places, at most so many, and the digits behind the point that they need.
function ticksWithin(from, to, most) {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((multiple) => multiple * power >= rough) ?? 10) * power;
  const places = [];
  for (let index = Math.ceil(from / step); index * step <= to; index++) places.push(index * step);
  return { places, digits: Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 12) };
}

// As much of a text as fits a width, in the font that the pen holds; nothing where that would be a few letters.
function fitting(pen, text, width) {
  const whole = pen.measureText(text).width;
  if (whole <= width) return text;
  const kept = Math.floor((text.length * width) / whole) - 2;
  return kept > 3 ? `${text.slice(0, kept)}…` : "";
}

// How many of some sorted numbers are not above a value.
function above(numbers, value) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
