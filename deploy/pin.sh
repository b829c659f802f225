#!/bin/sh
# Prints the images that deploy/ pulls with their current digests, as variables for deploy/.env:
#
#     sh deploy/pin.sh >> deploy/.env
set -eu
cd "$(dirname "$0")"
grep -ho '\${[A-Z]*_IMAGE:-[^}]*}' compose.yaml | tr -d '${}' | sort -u | while read -r pair; do
    image=${pair#*:-}
    digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
    echo "${pair%%:-*}=$image@$digest"
done
