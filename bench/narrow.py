"""The synthetic flows with few values in each field, for many queries that group by them."""

from __future__ import annotations

import msgspec

from mars.local.flows import Flows

SIPS, DIPS, TYPES, SPORTS, DPORTS, VLANS, DCS, ASNS = 500, 500, 16, 200, 2_048, 100, 8, 50


class NarrowFlows(Flows):
    """500 skewed sips, 500 dips, 16 types, 200 sports, 2,048 dports, 100 vlans, 8 dcs, 50 asns."""

    def __init__(self, seed: int = 1, *, disorder_ms: int = 1_000) -> None:
        super().__init__(seed, sips=SIPS, groups=SIPS * TYPES, disorder_ms=disorder_ms)

    def _detail(self) -> bytes:
        few = self._random.integers
        dip = int(few(0, DIPS))
        detail = {
            "dip": f"10.1.{dip // 250}.{dip % 250}",
            "sport": int(few(0, SPORTS)) + 30_000,
            "dport": int(few(0, DPORTS)),
            "bytes": int(few(40, 1500)),
            "pkts": int(few(1, 100)),
            "flags": int(few(0, 64)),
            "ttl": int(few(30, 255)),
            "loss": int(few(0, 100)) / 100,
            "rtt": int(few(0, 1_000)),
            "ok": bool(few(0, 2)),
            "vlan": int(few(0, VLANS)),
            "if": int(few(0, 8)),
            "dc": int(few(0, DCS)),
            "asn": int(few(0, ASNS)),
            "tos": 0,
            "dur": int(few(0, 1_000)),
            "seq": int(few(0, 100)),
        }
        return msgspec.json.encode(detail)[1:]
