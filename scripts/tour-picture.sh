#!/bin/bash
# tour-picture.sh: makes docs/tour.svg, README's picture of a terminal, from a real run of README's
# tour. As root.
set -euo pipefail
cd "$(dirname "$0")/.."
picture=$PWD/docs/tour.svg
before=$(stat -c %Y.%i "$picture" 2>/dev/null || true)
EBOF_TOUR_PICTURE=$picture cargo test --locked -p ebof --test it -- --nocapture the_tour_of_the_readme_prints_what_it_says
if [[ $(stat -c %Y.%i "$picture" 2>/dev/null || true) == "$before" ]]; then
  echo "tour-picture: the tour was not run: $picture has not changed" >&2
  exit 1
fi
