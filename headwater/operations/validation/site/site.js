"use strict";
const onlyFailed = document.getElementById("only-failed");
if (onlyFailed) {
  onlyFailed.addEventListener("change", () => {
    document.body.classList.toggle("hide-passed", onlyFailed.checked);
  });
}
