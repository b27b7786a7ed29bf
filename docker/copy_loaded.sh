#!/bin/sh
# usage: copy_loaded.sh TARGET PROGRAM...
# Copies programs with the libraries that they load into the directory TARGET, which becomes an image of nothing else. The
# Debian packages that the files belong to are in its /var/lib/dpkg/status, where scanners look, and so are the packages
# of the libraries that a program contains: /usr/share/oarlock/NAME.packages, which its build made (cmake/static_packages.sh).
set -eu
target=$1
shift

# The loader, then each library as the loader finds it.
loaded() {
  for program in "$@"; do ldd "$program"; done | grep -o '/[^ ]*' | sort -u
}

mkdir -p "$target/usr/bin" "$target/usr/lib" "$target/etc" "$target/tmp" "$target/var/lib/dpkg/info"
chmod 1777 "$target/tmp"
for directory in bin lib lib64; do
  mkdir -p "$target/usr/$directory"
  ln -s "usr/$directory" "$target/$directory"   # as Debian's merged /usr
done
cp "$@" "$target/usr/bin/"

: >"$target/packages"
for library in $(loaded "$@"); do
  file=$(realpath "$library")
  place=$target/usr/${library#/usr}   # /lib is /usr/lib
  mkdir -p "$(dirname "$place")"
  cp "$file" "$place"
  dpkg -S "$file" "${file#/usr}" 2>/dev/null | cut -d: -f1 | head -n 1 >>"$target/packages"
done
status=$target/var/lib/dpkg/status
sort -u "$target/packages" | while read -r package; do
  dpkg-query --status "$package"
  echo   # ends the record
done >"$status"
rm "$target/packages"
for program in "$@"; do
  records=/usr/share/oarlock/$(basename "$program").packages
  [ ! -e "$records" ] || cat "$records" >>"$status"
done

printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' >"$target/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' >"$target/etc/group"
printf 'hosts: files dns\n' >"$target/etc/nsswitch.conf"
