# shellcheck shell=bash disable=SC2154  # work
# Images without Oarlock and without a shell, made of files of this machine. Needs common.sh and oci_archive.sh; $work is a directory.

# load_image NAME: the files below $work/NAME.
load_image() {
  make_oci_archive "$work/$1.tar" "docker.io/test/$1:1" "$work/$1" '{"Env": ["PATH=/usr/bin"]}'
  scripts/cluster load-image "$work/$1.tar"
}

# python_image FILE PACKAGE...: Debian's Python with these packages, and the file in the root directory.
python_image() {
  local python file
  python=$(basename "$(realpath /usr/bin/python3)")
  mkdir "$work/python"
  dpkg -L python3-minimal "$python-minimal" "lib$python-minimal" libc6 libexpat1 zlib1g "${@:2}" | grep -v '^/usr/share/' | sort -u |
    while read -r file; do [[ -d $file ]] || echo "${file#/}"; done | tar -C / -cf - -T - | tar -C "$work/python" -xf -
  mkdir -p "$work/python/etc"
  echo 'root:x:0:0:root:/root:' >"$work/python/etc/passwd"
  cp "$1" "$work/python/"
  load_image python
}
