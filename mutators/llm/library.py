"""litellm, loaded late and set up for us. No other module imports it."""

from __future__ import annotations

import logging
import os
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, cast

from mutators.llm.wire import Wire

if TYPE_CHECKING:
    import httpx


def litellm_module() -> ModuleType:
    """The library, loaded with the first call as that takes seconds and megabytes; it fetches no list of prices."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    # Cancelled at the wrong moment, it forgets to await its own coroutine, which is not for the user to know.
    warnings.filterwarnings("ignore", "coroutine '.*completion' was never awaited", RuntimeWarning)
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_hf_tokenizer_download = True
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    if litellm.aclient_session is None:  # what it takes for servers that speak OpenAI's language
        litellm.aclient_session = _http_client()
    return litellm


def _http_client() -> httpx.AsyncClient:
    """The client that litellm would make itself, with a `Wire` that watches what arrives."""
    import httpx
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, get_ssl_configuration

    ssl = get_ssl_configuration()
    inner = AsyncHTTPHandler.create_async_transport(
        ssl_context=None if isinstance(ssl, bool | str) else ssl, ssl_verify=ssl if isinstance(ssl, bool) else None
    )
    wire = Wire(inner or httpx.AsyncHTTPTransport(verify=ssl))
    return httpx.AsyncClient(transport=cast(httpx.AsyncBaseTransport, wire), follow_redirects=True)
