"""The hostile parts as fixtures. Each stands in a module of its own beside this file."""

from tests.hostile.local_user import shared_place as shared_place
from tests.hostile.login_host import login_host as login_host
from tests.hostile.node import node as node
from tests.hostile.other_version import other_version as other_version
from tests.hostile.other_version import store as store
from tests.hostile.repository import hostile_clone as hostile_clone
from tests.support.mirror_rig import rsync_rig as rsync_rig
from tests.support.mirror_sshd import sshd as sshd
