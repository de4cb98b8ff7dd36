"""A threshold for each name of the head, and how well each is told, on photographs that were held out.

    python -m training.nano.thresholds --data DATA

Every tenth photograph (by a digest of its name) is never trained on. Writes calibration.safetensors, and a table of
every name to head.json: photographs with it, average precision over their cells, AUROC of presence, threshold.
"""

from __future__ import annotations

import json

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from training.nano.features import arguments
from training.nano.head import Head
from training.nano.labels import Names
from training.nano.train import load

GAIN = 1.5  # slope of every name's logit
FALSE = 5.0  # a false "it is there" counts as so many misses
FEW = 6.0  # the usual threshold counts as so many photographs
LEAST = 0.35  # share of GAIN above the threshold of a name of which no photograph was held out: it is never sure


@torch.no_grad()
def look(head: Head, photos: list[tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each photograph and name: the peak's logit (mean of the best 1/256), whether it is there, whether that is
    known, and the average precision over the cells (NaN where it is not there). All [photographs, names]."""
    count = len(photos[0][0].weight)
    peaks, precision = np.zeros((len(photos), count)), np.full((len(photos), count), np.nan)
    there, known = np.zeros(peaks.shape, bool), np.zeros(peaks.shape, bool)
    for k, (photo, fine, coarse, whole) in enumerate(photos):
        x = head(*(torch.from_numpy(a.astype(np.float32))[None] for a in (fine, coarse, whole)))[0]
        h, w = photo.target.shape[1:]
        x = x[:, :h, :w].reshape(count, -1).numpy()
        t = photo.target.reshape(count, -1) > 127
        peaks[k] = np.sort(x, 1)[:, -max(1, x.shape[1] // 256) :].mean(1)
        there[k], known[k] = t.any(1), photo.weight > 0
        for i in np.flatnonzero(there[k]):
            y = t[i][np.argsort(-x[i], kind="stable")]
            precision[k, i] = (np.cumsum(y) / np.arange(1, len(y) + 1))[y].mean()
    return peaks, there, known, precision


def calibrate(peaks: np.ndarray, there: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(gain, shift, above) of each name: the calibrated logit is gain x + shift, 0 at the name's threshold.

    Where it is positive, it is `above` as steep.

    The threshold of a name has the least error, where a false yes counts FALSE times. It is drawn to the median of all
    names' thresholds as if that were FEW photographs more.
    """
    found = np.full(peaks.shape[1], np.nan)
    count = np.zeros(peaks.shape[1])
    for i in range(peaks.shape[1]):
        yes, no = peaks[there[:, i], i], peaks[~there[:, i] & known[:, i], i]
        if len(yes) >= 2 and len(no) >= 2:
            at = np.sort(np.concatenate([yes, no]))
            missed = np.searchsorted(np.sort(yes), at) / len(yes)
            false = 1 - np.searchsorted(np.sort(no), at) / len(no)
            found[i], count[i] = at[np.argmin(missed + FALSE * false)], min(len(yes), len(no))
    usual = float(np.nanmedian(found))
    threshold = np.where(np.isnan(found), usual, (np.nan_to_num(found) * count + usual * FEW) / (count + FEW))
    return np.full(len(threshold), GAIN), -GAIN * threshold, np.clip((count + 1) / FEW, LEAST, 1)


def main() -> None:
    args = arguments(__doc__)
    names = Names()
    kept = load(args.data, args.cache, names, 200, held_out=True, research=not args.no_research)
    head = Head(len(names.all))
    head.load_state_dict(load_file(args.run / "head.safetensors"))
    peaks, there, known, precision = look(head.eval(), kept)
    gain, shift, above = calibrate(peaks, there, known)
    fitted = {"gain": gain, "shift": shift, "above": above}
    fitted = {name: torch.from_numpy(values).float() for name, values in fitted.items()}
    save_file(fitted, args.run / "calibration.safetensors")
    rows = []
    for i, name in enumerate(names.all):
        yes, no = peaks[there[:, i], i], peaks[~there[:, i] & known[:, i], i]
        auroc = round(float((yes[:, None] > no).mean()), 3) if len(yes) and len(no) else None
        mean = round(float(np.nanmean(precision[:, i])), 3) if len(yes) else None
        rows.append([name, len(yes), mean, auroc, round(float(-shift[i] / gain[i]), 2)])
    (args.run / "head.json").write_text(json.dumps({"names": names.all, "held_out": rows}, indent=1))
    print(f"{len(kept)} photographs held out; name, with it, average precision, AUROC of presence, threshold")
    for row in sorted(rows, key=lambda row: -row[1]):
        print("{:24s}{:5d} {!s:>7} {!s:>7} {:7.2f}".format(*row))


if __name__ == "__main__":
    main()
