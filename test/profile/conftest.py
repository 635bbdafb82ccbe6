import sys
from pathlib import Path

PROFILE = Path(__file__).resolve().parents[2] / "profile"
sys.path.insert(0, str(PROFILE))
