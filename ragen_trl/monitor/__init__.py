"""The collapse monitor: signs of an echo trap, a callback that acts on them, and the way back."""

from ragen_trl.monitor.callback import EchoTrapCallback
from ragen_trl.monitor.signals import Signal, default_signals
from ragen_trl.monitor.watch import Alarm, CollapseWatch

__all__ = ["Alarm", "CollapseWatch", "EchoTrapCallback", "Signal", "default_signals"]
