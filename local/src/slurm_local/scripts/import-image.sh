# Brings an image archive into this node's containerd, if it is not there yet.
# $1: the archive. A list beside it names the layers that are unpacked already, in /stage/layers, lowest first:
# what containerd calls the pile up to here, the pile below ("-": none), the folder.
set -eu
mark=/var/lib/containerd/imported-${1##*/}
layers=${1%.tar}.layers

containerd() { ctr --namespace k8s.io "$@"; }

adopt() { # a snapshot that is only a link to the folder
    key=adopt-$$-$1
    if [ "$2" = - ]; then set -- "$1" "" "$3"; fi
    place=$(containerd snapshots prepare --target / "$key" $2 |
        sed -n 's/.*upperdir=\([^,]*\).*/\1/p; t; s|.* -t bind \(/[^ ]*\) .*|\1|p')
    rmdir "$place"
    ln -s "/stage/layers/$3" "$place"
    # Somebody else may have been quicker.
    containerd snapshots commit "$1" "$key" || containerd snapshots info "$1" >/dev/null
}

all_unpacked() { # a node may have been started with another cache
    [ -e "$layers" ] || return 1
    while read -r _ _ folder; do [ -d "/stage/layers/$folder" ] || return 1; done <"$layers"
}

if [ -e "$mark" ]; then exit 0; fi
if all_unpacked; then
    # Before the image is known, or a pod could make containerd unpack it after all.
    # Finished ones only: an import that was interrupted leaves others, whose names contain these.
    known=$(containerd snapshots ls | sed -n 's/^\(sha256:[0-9a-f]*\) .*/\1/p')
    while read -r chain below folder; do
        case $known in *"$chain"*) ;; *) adopt "$chain" "$below" "$folder" ;; esac
    done <"$layers"
    containerd images import --local --no-unpack "$1"
else
    containerd images import --local "$1"
fi
touch "$mark"
