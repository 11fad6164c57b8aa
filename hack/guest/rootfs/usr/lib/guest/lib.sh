# Shared by the guest's scripts.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
say() { echo "virtpod guest: $*" >/dev/ttyS0; }

add_key() {
  mkdir -p /root/.ssh && chmod 700 /root /root/.ssh
  grep -qxF -- "$1" /root/.ssh/authorized_keys 2>/dev/null || echo "$1" >>/root/.ssh/authorized_keys
  chmod 600 /root/.ssh/authorized_keys
}

set_name() {
  hostname "$1" && echo "$1" >/etc/hostname
  printf '127.0.0.1 localhost %s\n::1 localhost\n' "$1" >/etc/hosts
}

# wait_for SECONDS COMMAND...: polls ten times a second.
wait_for() {
  left=$(($1 * 10))
  shift
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    [ $left -gt 0 ] || return 1
    usleep 100000
  done
}
