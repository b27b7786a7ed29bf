# scripts/setup cpprestsdk: the HTTP library of the transport that -DOARLOCK_CPPRESTSDK=ON adds.
apt_install libcpprest-dev
