# scripts/setup pictures: what scripts/chart pictures draws previews of the dashboards with.
apt_install chromium fonts-dejavu-core pngquant prometheus python3
