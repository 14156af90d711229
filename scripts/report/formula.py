"""Equations of the record as MathML.

A prediction in the record names its equation in plain text: "(1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1))". parse() makes a
tree of it, mathml() writes the tree. No library reads this notation: it is neither LaTeX nor AsciiMath, a product needs no
sign, "/" takes the whole products beside it, and words may stand before, in and after a formula.
"""

import re

import markupsafe

GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "tau": "τ", "phi": "φ", "rho": "ρ", "epsilon": "ε", "theta": "θ"}
SYMBOLS = set("abcdfgijknpqrstxyEFGHKNPSTW") | {"c_hat", "r'"} | set(GREEK)
BIG = {"sum": "∑", "prod": "∏"}
RELATIONS = {"<": "<", ">": ">", "<=": "≤", ">=": "≥", "=": "="}
CLOSING = {"(": ")", "[": "]", "{": "}"}
TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)*)|(?P<word>[A-Za-z]+\d*(?:_[A-Za-z0-9_]+)?'?)|(?P<sign><=|>=|[-+*/^_<>=(){}\[\],;:])|(?P<other>\S))"
)
OVER = re.compile(r"sum over (\w+) of ")  # a sum sign with a word below it
SOURCE = re.compile(r"(.*) \(([A-Z][^()]* et al\. \d{4})\)")  # an equation that names its paper at its end


class NoFormula(ValueError):
    """The text is not in the notation of the record's equations."""


def is_symbol(word):
    """True for alpha, gamma_i, t_ar, c2; False for words of English and for names with more than two parts."""
    base, _, lower = word.partition("_")
    return word in SYMBOLS or "_" not in lower and (base in SYMBOLS or base.rstrip("0123456789") in SYMBOLS)


def tokens_of(text):
    return [(match.lastgroup, match[0].strip()) for match in TOKEN.finditer(OVER.sub(r"sum_{\1} ", text).strip())]


class Parser:
    """A parser by recursive descent. A node is a tuple: its kind, then its parts."""

    def __init__(self, text):
        self.tokens = tokens_of(text)
        self.at = 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, text=None):
        kind, found = self.peek()
        if text is not None and found != text or kind == "end":
            raise NoFormula(f"expected {text or 'more'}, got '{found}'")
        self.at += 1
        return found

    def whole(self):
        node = self.list(("end",))
        if self.peek()[0] != "end":
            raise NoFormula(f"'{self.peek()[1]}' has no place")
        return node

    def list(self, ends):
        """Relations that are separated by commas, semicolons or colons."""
        parts = [self.relation()]
        while self.peek()[1] in (",", ";", ":"):
            parts += [("mark", self.take()), self.relation()]
        return parts[0] if len(parts) == 1 else ("row", parts)

    def relation(self):
        parts = [self.sum()]
        while self.peek()[1] in RELATIONS:
            parts += [("operator", RELATIONS[self.take()]), self.sum()]
        return parts[0] if len(parts) == 1 else ("row", parts)

    def sum(self):
        parts = []
        if self.peek()[1] == "-":
            self.take()
            parts.append(("operator", "−"))
        parts.append(self.product())
        while self.peek()[1] in ("+", "-"):
            parts += [("operator", "−" if self.take() == "-" else "+"), self.product()]
        return parts[0] if len(parts) == 1 else ("row", parts)

    def product(self):
        """Factors beside one another. A fraction takes those on its left, up to a word, and those on its right, up to a word."""
        factors = self.factors()
        while self.peek()[1] == "/":
            self.take()
            factors = self.fraction(factors, self.factors())
        return factors[0] if len(factors) == 1 else ("row", factors)

    @staticmethod
    def fraction(left, right):
        texts = [place for place, node in enumerate(left) if node[0] == "text"]
        start = texts[-1] + 1 if texts and texts[-1] < len(left) - 1 else 0
        if left[start] == ("operator", "·") and start + 1 < len(left):
            start += 1
        if [node[0] for node in left[start:]] == ["big", "number"]:
            start += 1  # "sum_x 1 / y" is a sum of fractions
        # A denominator ends before the words that follow it, unless it is made of words.
        end = next((place for place, node in enumerate(right) if node[0] == "text" and place > 0), len(right))
        if right and right[0][0] == "text":
            end = len(right)
        return [*left[:start], ("fraction", row(left[start:]), row(right[:end])), *right[end:]]

    def factors(self):
        found = []
        while True:
            kind, text = self.peek()
            if text == "*":
                self.take()
                found.append(("operator", "·"))
            elif kind in ("number", "word", "other") or text in CLOSING:
                found.append(self.power())
            else:
                break
        if not found:
            raise NoFormula(f"expected a factor, got '{text}'")
        return joined_texts(found)

    def power(self):
        node = self.primary()
        if self.peek()[1] == "^":
            self.take()
            node = ("power", node, self.script())
        return node

    def script(self):
        """An exponent, or what stands below a sum sign: a group without its parentheses, or one symbol."""
        node = self.primary()
        return node[2] if node[0] == "group" else node

    def primary(self):
        kind, text = self.peek()
        if text in CLOSING:
            self.take()
            inner = self.list(CLOSING[text])
            self.take(CLOSING[text])
            return ("group", text, inner)
        self.take()
        if kind == "number":
            return ("number", text)
        if kind == "word":
            return self.word(text)
        return ("text", text)

    def word(self, text):
        base, _, lower = text.partition("_")
        if base in BIG:
            if lower:
                return ("big", BIG[base], ("symbol", lower))
            below = None
            if self.peek()[1] == "_":
                self.take()
                below = self.script()
            return ("big", BIG[base], below)
        if text in ("min", "max", "min_H"):
            return ("function", text)
        if is_symbol(text):
            return ("symbol", text)
        return ("text", text)


def row(nodes):
    return nodes[0] if len(nodes) == 1 else ("row", list(nodes))


def joined_texts(nodes):
    """Words that follow one another become one text, and so does an article between words."""
    is_text = lambda place: 0 <= place < len(nodes) and nodes[place][0] == "text"
    out = []
    for place, node in enumerate(nodes):
        if node == ("symbol", "a") and is_text(place - 1) and is_text(place + 1):
            node = ("text", "a")
        if node[0] == "text" and out and out[-1][0] == "text":
            space = "" if node[1] in ".'" else " "
            out[-1] = ("text", f"{out[-1][1]}{space}{node[1]}")
        else:
            out.append(node)
    return out


def parse(text):
    """The tree of an equation. Raises NoFormula if the text is not an equation."""
    source = SOURCE.fullmatch(text)
    if source:
        return ("row", [parse(source[1]), ("text", f"({source[2]})")])
    return Parser(text).whole()


def identifier(name):
    text = GREEK.get(name, name)
    return f"<mi>{markupsafe.escape(text)}</mi>"


def symbol(name):
    """gamma_i is γ with the index i; c_hat has a hat; alpha2 is the α of the second draft."""
    if name == "c_hat":
        return "<mover accent='true'><mi>c</mi><mo>^</mo></mover>"
    base, _, lower = name.partition("_")
    if base not in SYMBOLS and base.rstrip("0123456789") in SYMBOLS:
        short = base.rstrip("0123456789")
        base, lower = short, base[len(short) :] + lower
    if base == "r'":
        return "<mi>r′</mi>"
    if not lower:
        return identifier(base)
    below = f"<mn>{lower}</mn>" if lower.isdigit() else identifier(lower)
    return f"<msub>{identifier(base)}{below}</msub>"


def without_parentheses(node):
    return node[2] if node[0] == "group" and node[1] == "(" else node


def markup(node):
    kind = node[0]
    if kind == "number":
        return f"<mn>{node[1]}</mn>"
    if kind == "symbol":
        return symbol(node[1])
    if kind == "function":
        name, _, lower = node[1].partition("_")
        return f"<msub><mi>{name}</mi><mi>{lower}</mi></msub>" if lower else f"<mi>{name}</mi>"
    if kind == "text":
        return f"<mtext>\u00a0{markupsafe.escape(node[1])}\u00a0</mtext>"
    if kind in ("operator", "mark"):
        return f"<mo>{markupsafe.escape(node[1])}</mo>"
    if kind == "big":
        sign = f"<mo>{node[1]}</mo>"
        if node[2] is None:
            return sign
        below = node[2]
        inner = f"<mtext>{markupsafe.escape(below[1])}</mtext>" if below[0] == "text" else markup(below)
        return f"<munder>{sign}<mrow>{inner}</mrow></munder>"
    if kind == "group":
        opening, closing = (node[1], CLOSING[node[1]]) if node[1] != "{" else ("", "")
        inner = markup(node[2])
        stretchy = "true" if "<mfrac>" in inner else "false"
        return f"<mrow><mo stretchy='{stretchy}'>{opening}</mo>{inner}<mo stretchy='{stretchy}'>{closing}</mo></mrow>"
    if kind == "power":
        return f"<msup>{markup(node[1])}<mrow>{markup(node[2])}</mrow></msup>"
    if kind == "fraction":
        top, bottom = (f"<mrow>{markup(without_parentheses(part))}</mrow>" for part in node[1:])
        return f"<mfrac>{top}{bottom}</mfrac>"
    return "".join(map(markup, node[1]))  # row


def mathml(text):
    """The equation as a <math> element, which keeps the plain text as its annotation. An equation that cannot be read stays plain text."""
    if not text:
        return markupsafe.Markup()
    try:
        body = markup(parse(text))
    except NoFormula:
        return markupsafe.Markup("<code>") + text + markupsafe.Markup("</code>")
    note = f'<annotation encoding="text/plain">{markupsafe.escape(text)}</annotation>'
    return markupsafe.Markup(f"<math displaystyle='true'><semantics><mrow>{body}</mrow>{note}</semantics></math>")
