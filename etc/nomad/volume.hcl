# A volume: nomad volume create etc/nomad/volume.hcl
id        = "data"
name      = "data"
type      = "csi"
plugin_id = "attachd"

capacity_min = "10GiB"
capacity_max = "10GiB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

mount_options {
  fs_type = "ext4"
}

# The volume type; without it, the default type.
parameters {
  type = "fast"
}
