"""What the package lorax-client makes of API keys: ADDRESS GOOD LIMITED, the latter for one request a minute."""

import asyncio
import sys

from expecting import expect
from lorax import AsyncClient, Client
from lorax.errors import OverloadedError, UnknownError

address, good, limited = sys.argv[1:]
ask = {"prompt": "Hello", "max_new_tokens": 4}


def client(key, kind=Client):
    return kind(f"http://{address}", headers={"Authorization": f"Bearer {key}"})


assert client(good).generate(**ask).details.generated_tokens <= 4
# It has no class for these.
expect(UnknownError, "status 401", lambda: client("wrong").generate(**ask))
expect(UnknownError, "status 401", lambda: list(client("wrong").generate_stream(**ask)))
client(limited).generate(**ask)
over = "requests_per_minute=1"
expect(OverloadedError, over, lambda: client(limited).generate(**ask))
expect(OverloadedError, over, lambda: list(client(limited).generate_stream(**ask)))
expect(OverloadedError, over, lambda: asyncio.run(client(limited, AsyncClient).generate(**ask)))
