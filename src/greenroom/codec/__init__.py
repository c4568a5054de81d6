"""Values to bytes and back: what messages, constructor arguments, exits and later stored payloads are encoded with.

`Codec` is the way in. A value goes `codec` → `dynamic` (what is it?) → the plans of `classes`, `containers`, `leaves`,
`moments`, `enums`, `choices`, `exceptions`, `externals` → JSON; bytes come back the same way. Plans are made by `walk`,
once, when a class is registered, from annotations as `hints` reads them; `registry` and `tags` hold what types are
called.
"""

from greenroom.codec.codec import Codec
from greenroom.codec.tags import Resolver, Wire, default_tag, import_class, wire

__all__ = ["Codec", "Resolver", "Wire", "default_tag", "import_class", "wire"]
