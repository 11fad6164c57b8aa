# What the steps written by cloud-config.awk call. Each step knows its stage.
in_stage() { [ "$stage" = "$1" ]; }
cc_hostname() { in_stage early && set_name "$1" && touch /run/name-set; }
cc_fqdn() { in_stage early && set_name "${1%%.*}" && touch /run/name-set; }
cc_key() { in_stage early && add_key "$1"; }
cc_bootcmd() { in_stage early && (cd / && sh -c "$1") >>/run/bootcmd.log 2>&1; }
cc_runcmd() { in_stage late && (cd / && sh -c "$1") >>/run/user-data.log 2>&1; }
cc_password() { in_stage early && echo "root:$1" | chpasswd; }
cc_chpasswd() { in_stage early && echo "$1" | grep : | chpasswd; }

# path, mode, encoding, append, content
cc_file() {
  in_stage early || return 0
  mkdir -p "$(dirname "$1")"
  [ "$4" = true ] || : >"$1"
  case $3 in
    b64 | base64) printf %s "$5" | base64 -d >>"$1" ;;
    gz+b64 | gzip+base64 | gz+base64) printf %s "$5" | base64 -d | gunzip >>"$1" ;;
    *) printf %s "$5" >>"$1" ;;
  esac
  chmod "${2:-0644}" "$1"
}
