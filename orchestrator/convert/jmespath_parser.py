"""Parses a JMESPath with the library jmespath. Nothing is evaluated.

A path can be hostile, and the parser of jmespath recurses. Therefore the length of the text, the number of
tokens and the depth of brackets are checked first.
"""

from __future__ import annotations

import warnings

from jmespath.exceptions import (
    EmptyExpressionError,
    IncompleteExpressionError,
    LexerError,
    ParseError,
)
from jmespath.lexer import Lexer
from jmespath.parser import Parser

from orchestrator.convert.jmespath_steps import Tree
from orchestrator.convert.notes import CannotConvert

MAX_LENGTH = 10_000
MAX_TOKENS = 300
MAX_DEPTH = 20
MAX_INDEX = 10**15


def parse(text: str) -> Tree:
    """Parse a whole JMESPath. CannotConvert gives the reason if it is too large or not valid."""
    if len(text) > MAX_LENGTH:
        raise CannotConvert(f"a path of more than {MAX_LENGTH} characters is too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PendingDeprecationWarning)  # a text in backticks without quotes
            _check_tokens(text)
            tree: Tree = Parser().parse(text).parsed
            return tree
    except PendingDeprecationWarning:
        raise CannotConvert("a value in backticks is not JSON") from None
    except RecursionError:
        raise CannotConvert("it is nested too deeply") from None
    except ValueError as error:  # also every error of jmespath
        raise CannotConvert(_explain(error)) from None


def _explain(error: ValueError) -> str:
    match error:
        case EmptyExpressionError():
            return "the path is empty"
        case LexerError():
            message = error.message[:1].lower() + error.message[1:80]
            return f"not valid JMESPath: {message} at character {error.lexer_position + 1}"
        case IncompleteExpressionError() | ParseError(token_type="EOF"):
            return "not valid JMESPath: the path ends too early"
        case ParseError():
            token = str(error.token_value)[:40]
            return f"not valid JMESPath: unexpected {token!r} at character {error.lex_position + 1}"
    return "a number is too long"


_OPENING = frozenset({"lparen", "lbracket", "lbrace", "filter"})
_CLOSING = frozenset({"rparen", "rbracket", "rbrace"})


def _check_tokens(text: str) -> None:
    open_brackets = negations = 0
    for n, token in enumerate(Lexer().tokenize(text)):
        kind = token["type"]
        if n > MAX_TOKENS:
            raise CannotConvert(f"a path of more than {MAX_TOKENS} tokens is too long")
        if kind == "number" and abs(token["value"]) >= MAX_INDEX:
            raise CannotConvert("a number is too long")
        open_brackets += (kind in _OPENING) - (kind in _CLOSING)
        negations = negations + 1 if kind == "not" else 0
        if open_brackets + negations > MAX_DEPTH:
            raise CannotConvert(f"it is nested more than {MAX_DEPTH} levels deep")
