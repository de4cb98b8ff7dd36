// One request at a time: of the values that come meanwhile the newest is taken next, and the others never.

// run: value -> Promise; -> the function that takes values.
export function newest(run) {
  let next = null, busy = false;
  return async (value) => {
    next = { value };
    if (busy) return;
    busy = true;
    try {
      for (let now; (now = next);) {
        next = null;
        await run(now.value);
      }
    } finally {
      busy = false;
    }
  };
}
