"""Content of `secrets.json`, without the library for cryptography: few processes need that."""

from typing import Literal

from pydantic import BaseModel

from apexbridge.secrets.encryption_key import KeyPlace


class SealedFile(BaseModel):
    """The encrypted state, and where its key is."""

    version: Literal[1] = 1
    key: KeyPlace
    id: str
    nonce: str
    data: str
