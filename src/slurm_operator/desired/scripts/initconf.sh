# Copies configuration and keys to where the slurm user (401) can own them; a projected volume always belongs to root.
set -eu
from=/mnt/slurm
to=/mnt/etc/slurm
find -L "$from" -type f ! -path '*/..*' \( -name '*.conf' -o -name '*.key' -o -name '*.jwks' \) -exec cp -f {} "$to/" \;
find "$to" -type f -name '*.conf' -exec chmod 644 {} +
find "$to" -type f \( -name '*.key' -o -name '*.jwks' -o -name slurmdbd.conf \) -exec chmod 600 {} +
chown -R 401:401 "$to"
ls -lAn "$to"
