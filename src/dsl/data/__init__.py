"""Corpora, tokenizers, training windows and documents."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.data import tokenizers as tokenizers
    from dsl.data.blocks import read_texts as read_texts
    from dsl.data.catalogue import CORPORA as CORPORA
    from dsl.data.catalogue import Origin as Origin
    from dsl.data.catalogue import origin_of as origin_of
    from dsl.data.catalogue import register as register
    from dsl.data.cleaning import OTHER as OTHER
    from dsl.data.cleaning import fold as fold
    from dsl.data.cleaning import prose as prose
    from dsl.data.corpora import BETWEEN as BETWEEN
    from dsl.data.corpora import Corpus as Corpus
    from dsl.data.corpora import prepare as prepare
    from dsl.data.corpora import verify as verify
    from dsl.data.document_ends import document as document
    from dsl.data.sources import Progress as Progress
    from dsl.data.sources import default_cache as default_cache
    from dsl.data.sources import package as package
    from dsl.data.tokenizers import BEGIN as BEGIN
    from dsl.data.tokenizers import TOKENIZER as TOKENIZER
    from dsl.data.tokenizers import Pieces as Pieces
    from dsl.data.tokenizers import decode as decode
    from dsl.data.tokenizers import ends as ends
    from dsl.data.windows import Windows as Windows
    from dsl.data.windows import tokenise as tokenise

__getattr__, __dir__ = exports(__name__, __file__)
